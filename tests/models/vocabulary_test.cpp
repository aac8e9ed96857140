// read_vocabulary moves each key to its field, and names what is missing or wrong.

#include "models/vocabulary.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weights/gguf_builder.h"

namespace kvikk {
namespace {

// A vocabulary of three tokens that a test may bend before it is read.
class VocabularyOf {
 public:
  explicit VocabularyOf(std::string_view model) {
    builder.string("general.architecture", "llama");
    builder.string("tokenizer.ggml.model", model);
    builder.strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  }
  VocabularyOf& complete() {
    builder.string("tokenizer.ggml.pre", "smollm");
    builder.strings("tokenizer.ggml.merges", {"a b"});
    builder.array<float>("tokenizer.ggml.scores", 6, {-1, -2, -3});
    return *this;
  }
  Result<VocabularyData> read() {
    bytes = builder.build();
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    const auto file = GgufFile::parse("f.gguf", {data, bytes.size()});
    return file.ok() ? read_vocabulary(*file) : file.status();
  }
  std::string error() { return read().status().message(); }

  GgufBuilder builder;
  std::string bytes;
};

TEST(Vocabulary, EveryKeyHasItsField) {
  VocabularyOf v("gpt2");
  v.complete();
  v.builder.array<int32_t>("tokenizer.ggml.token_type", 5, {1, 3, 4});
  v.builder.u32("tokenizer.ggml.bos_token_id", 0);
  v.builder.u32("tokenizer.ggml.eos_token_id", 1);
  v.builder.u32("tokenizer.ggml.eot_token_id", 2);
  v.builder.i32("tokenizer.ggml.unknown_token_id", 1);
  v.builder.u32("tokenizer.ggml.padding_token_id", 0);
  v.builder.boolean("tokenizer.ggml.add_bos_token", 1);
  v.builder.boolean("tokenizer.ggml.add_eos_token", 0);
  v.builder.boolean("tokenizer.ggml.add_space_prefix", 0);
  v.builder.boolean("tokenizer.ggml.remove_extra_whitespaces", 1);
  const auto data = v.read();
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->model, "gpt2");
  EXPECT_EQ(data->pre, "smollm");
  EXPECT_EQ(data->architecture, "llama");
  EXPECT_EQ(data->tokens, (std::vector<std::string>{"a", "b", "ab"}));
  EXPECT_EQ(data->merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(data->scores, (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(data->types, (std::vector<TokenType>{TokenType::kNormal, TokenType::kControl,
                                                 TokenType::kUserDefined}));
  EXPECT_EQ(data->bos, 0);
  EXPECT_EQ(data->eos, 1);
  EXPECT_EQ(data->eot, 2);
  EXPECT_EQ(data->unk, 1);
  EXPECT_EQ(data->pad, 0);
  EXPECT_EQ(data->add_bos, true);
  EXPECT_EQ(data->add_eos, false);
  EXPECT_EQ(data->add_space_prefix, false);
  EXPECT_EQ(data->remove_extra_whitespaces, true);
}

TEST(Vocabulary, WhatTheFileDoesNotSayStaysUnsaid) {
  const auto data = VocabularyOf("gpt2").complete().read();
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_TRUE(data->types.empty());
  for (const auto& id : {data->bos, data->eos, data->eot, data->unk, data->pad}) EXPECT_FALSE(id);
  EXPECT_FALSE(data->add_bos || data->add_eos || data->add_space_prefix);
  EXPECT_FALSE(data->remove_extra_whitespaces);
}

TEST(Vocabulary, MissingPiecesAreNamed) {
  EXPECT_EQ(VocabularyOf("gpt2").error(), "f.gguf: key 'tokenizer.ggml.merges' is missing");
  EXPECT_EQ(VocabularyOf("llama").error(), "f.gguf: key 'tokenizer.ggml.scores' is missing");
  VocabularyOf no_pre("gpt2");
  no_pre.builder.strings("tokenizer.ggml.merges", {"a b"});
  EXPECT_EQ(no_pre.error(), "f.gguf: key 'tokenizer.ggml.pre' is missing");
  VocabularyOf none("gpt2");
  none.builder = GgufBuilder();
  EXPECT_EQ(none.error(), "f.gguf: key 'tokenizer.ggml.model' is missing");
}

TEST(Vocabulary, TokenIdsOutOfRange) {
  VocabularyOf v("gpt2");
  v.complete().builder.u32("tokenizer.ggml.eos_token_id", 3);
  EXPECT_EQ(v.error(),
            "f.gguf: key 'tokenizer.ggml.eos_token_id' is 3 but the vocabulary has 3 tokens");
  VocabularyOf negative("gpt2");
  negative.complete().builder.i32("tokenizer.ggml.eos_token_id", -1);
  EXPECT_NE(negative.error().find("must not be negative"), std::string::npos) << negative.error();
  VocabularyOf none("gpt2");
  none.complete().builder.u32("tokenizer.ggml.padding_token_id", UINT32_MAX);
  const auto data = none.read();
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_FALSE(data->pad.has_value());
}

TEST(Vocabulary, UnknownTokenTypes) {
  for (const int32_t type : {0, 7, -1}) {
    VocabularyOf v("gpt2");
    v.complete().builder.array<int32_t>("tokenizer.ggml.token_type", 5, {1, type, 1});
    EXPECT_NE(v.error().find("gives token 1 the type " + std::to_string(type)), std::string::npos)
        << v.error();
  }
}

TEST(Vocabulary, ChatTemplate) {
  VocabularyOf v("gpt2");
  v.complete().builder.string("tokenizer.chat_template", "{{ messages }}");
  ASSERT_TRUE(v.read().ok());
  const auto* bytes = reinterpret_cast<const uint8_t*>(v.bytes.data());
  const auto file = GgufFile::parse("f.gguf", {bytes, v.bytes.size()});
  EXPECT_EQ(*read_chat_template(*file), "{{ messages }}");
  const auto without = GgufFile::open(KVIKK_TEST_DATA "/gguf/values.gguf");
  ASSERT_TRUE(without.ok());
  const auto none = read_chat_template(*without);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(Vocabulary, BertAndT5HaveKeysOfTheirOwn) {
  VocabularyOf bert("bert");
  bert.builder.u32("tokenizer.ggml.cls_token_id", 1);
  bert.builder.u32("tokenizer.ggml.seperator_token_id", 2);
  const auto data = bert.read();
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->bos, 1);
  EXPECT_EQ(data->eos, 2);
  EXPECT_NE(VocabularyOf("t5").error().find("tokenizer.ggml.scores"), std::string::npos);
  VocabularyOf t5("t5");
  t5.complete().builder.array<uint8_t>("tokenizer.ggml.precompiled_charsmap", 0, {1, 0, 255});
  const auto with_map = t5.read();
  ASSERT_TRUE(with_map.ok()) << with_map.status().message();
  EXPECT_EQ(with_map->charsmap, std::string("\x01\x00\xFF", 3));
}

TEST(Vocabulary, FoldersAreReadByWhatTheyHold) {
  const std::string root = KVIKK_TEST_DATA "/tokenizers/";
  for (const char* folder : {"json/gpt2", "json/bert-cased", "sentencepiece/spm-bpe"}) {
    const auto tokenizer = read_folder_tokenizer(root + folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    ASSERT_TRUE(tokenizer->has_value()) << folder;
    EXPECT_FALSE((*tokenizer)->encode("The dog", {}).empty());
  }
  const auto none = read_folder_tokenizer(root);
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_FALSE(none->has_value());
  const auto no_template = read_folder_chat_template(root);
  ASSERT_TRUE(no_template.ok());
  EXPECT_FALSE(no_template->has_value());
}

}  // namespace
}  // namespace kvikk
