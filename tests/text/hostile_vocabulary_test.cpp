// Damaged vocabularies: a message or defined behaviour, never a crash.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabularies.h"

namespace kvikk {
namespace {

// The Status of creating a tokenizer from `data` after `change`.
Status status_of(VocabularyData data, const std::function<void(VocabularyData*)>& change) {
  change(&data);
  return Tokenizer::create(std::move(data)).status();
}

Status byte_status(const std::function<void(VocabularyData*)>& change) {
  return status_of(small_byte_vocabulary({"a b", "ab c"}), change);
}

Status piece_status(const std::function<void(VocabularyData*)>& change) {
  return status_of(small_piece_vocabulary({"a", "b", "ab"}), change);
}

void expect_message(const Status& status, StatusCode code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(HostileVocabularyTest, UnchangedIsFine) {
  EXPECT_TRUE(byte_status([](VocabularyData*) {}).ok());
  EXPECT_TRUE(piece_status([](VocabularyData*) {}).ok());
}

TEST(HostileVocabularyTest, UnknownKinds) {
  expect_message(byte_status([](auto* d) { d->model = "rwkv"; }), StatusCode::kUnsupported, "rwkv");
  expect_message(byte_status([](auto* d) { d->model = ""; }), StatusCode::kUnsupported,
                 "gpt2 llama");
  const Status unknown = byte_status([](auto* d) { d->pre = "gpt-3"; });
  expect_message(unknown, StatusCode::kUnsupported, "'gpt-3'");
  for (const std::string_view name : pretokenizer_names()) {
    expect_message(unknown, StatusCode::kUnsupported, name);
    EXPECT_TRUE(Pretokenizer::create(name).ok()) << Pretokenizer::create(name).status().message();
  }
  expect_message(byte_status([](auto* d) { d->pre = "default"; }), StatusCode::kUnsupported,
                 "default");
  expect_message(byte_status([](auto* d) { d->pre = ""; }), StatusCode::kUnsupported, "names no");
}

TEST(HostileVocabularyTest, Counts) {
  expect_message(byte_status([](auto* d) { d->tokens.clear(); }), StatusCode::kDamaged,
                 "no tokens");
  expect_message(byte_status([](auto* d) { d->types.pop_back(); }), StatusCode::kDamaged,
                 "token_type has 30 entries but the vocabulary has 31");
  expect_message(byte_status([](auto* d) { d->scores = {1.0f}; }), StatusCode::kDamaged,
                 "scores has 1");
  expect_message(piece_status([](auto* d) { d->scores.clear(); }), StatusCode::kDamaged,
                 "no scores");
  expect_message(byte_status([](auto* d) { d->merges.clear(); }), StatusCode::kDamaged,
                 "no merges");
  EXPECT_TRUE(byte_status([](auto* d) { d->types.clear(); }).ok());
}

TEST(HostileVocabularyTest, Merges) {
  expect_message(byte_status([](auto* d) { d->merges[1] = "ab \u4e2d"; }), StatusCode::kDamaged,
                 "merge 1");
  expect_message(byte_status([](auto* d) { d->merges[1] = "x y"; }), StatusCode::kDamaged, "makes");
  expect_message(byte_status([](auto* d) { d->merges[0] = "ab"; }), StatusCode::kDamaged, "space");
  expect_message(byte_status([](auto* d) { d->merges[0] = ""; }), StatusCode::kDamaged, "space");
  expect_message(byte_status([](auto* d) { d->merges[0] = " "; }), StatusCode::kDamaged, "space");
  expect_message(byte_status([](auto* d) { d->merges[0] = "a "; }), StatusCode::kDamaged,
                 "merge 0");
  // A merge must not be a way to make a control token.
  expect_message(byte_status([](auto* d) {
                   d->tokens[29] = "bc";
                   d->merges.push_back("b c");
                   d->types[29] = TokenType::kControl;
                 }),
                 StatusCode::kDamaged, "merge 2");
}

TEST(HostileVocabularyTest, Tokens) {
  expect_message(byte_status([](auto* d) { d->tokens[3] = "a"; }), StatusCode::kDamaged,
                 "tokens 0 and 3 are both 'a'");
  expect_message(piece_status([](auto* d) { d->tokens[260] = "a"; }), StatusCode::kDamaged,
                 "tokens 259 and 260");
  expect_message(piece_status([](auto* d) { d->tokens[2] = "<s>"; }), StatusCode::kDamaged,
                 "tokens 1 and 2 are both '<s>'");
  expect_message(piece_status([](auto* d) { d->tokens[3] = "<0xG0>"; }), StatusCode::kDamaged,
                 "token 3");
  expect_message(piece_status([](auto* d) { d->types[5] = static_cast<TokenType>(77); }),
                 StatusCode::kDamaged, "type 77");
  expect_message(piece_status([](auto* d) { d->scores[5] = std::nanf(""); }), StatusCode::kDamaged,
                 "score");
  expect_message(piece_status([](auto* d) { d->tokens[260].assign(100000, 'x'); }),
                 StatusCode::kUnsupported, "100000 bytes");
  expect_message(byte_status([](auto* d) { d->tokens[29].assign(1000, 'x'); }),
                 StatusCode::kUnsupported, "1000 bytes");
}

TEST(HostileVocabularyTest, Ids) {
  expect_message(byte_status([](auto* d) { d->bos = 31; }), StatusCode::kDamaged,
                 "bos_token_id is 31 but the vocabulary has 31 tokens");
  expect_message(byte_status([](auto* d) { d->eos = -5; }), StatusCode::kDamaged, "eos_token_id");
  expect_message(byte_status([](auto* d) { d->unk = INT32_MAX; }), StatusCode::kDamaged, "unknown");
  expect_message(byte_status([](auto* d) { d->pad = 99; }), StatusCode::kDamaged, "padding");
  expect_message(byte_status([](auto* d) { d->eot = 99; }), StatusCode::kDamaged, "eot");
}

TEST(HostileVocabularyTest, OddTokensAreHarmless) {
  VocabularyData data = small_piece_vocabulary({"a", "b", "ab"});
  data.tokens[259] = std::string("\xE4\xB8", 2);  // half a character
  data.tokens[260] = "";
  data.tokens[1] = std::string("\xFF<", 2);
  data.tokens[261] = "\u2581";
  const Result<Tokenizer> tokenizer = Tokenizer::create(data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode(" a", {.parse_special = true}), (std::vector<TokenId>{261, 3 + 'a'}));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{259, 260, 1, 261}, true), "\uFFFD\uFFFD< ");
}

TEST(HostileVocabularyTest, TokensOfHalfACharacterDoNotTearText) {
  VocabularyData data = small_piece_vocabulary({"a", "\u4e2d"});
  data.tokens[1] = std::string("\xE4", 1);
  data.tokens[2] = std::string("\xB8\xAD", 2);
  data.types[1] = TokenType::kUserDefined;
  const Result<Tokenizer> tokenizer = Tokenizer::create(data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("\u4e2da", {.parse_special = true}),
            (std::vector<TokenId>{260, 259}));
}

TEST(HostileVocabularyTest, ControlTokensCannotBeMerged) {
  // Llama's "</s>" as a control token whose parts are ordinary pieces.
  const Result<Tokenizer> tokenizer =
      Tokenizer::create(small_piece_vocabulary({"<", "/", "s", ">", "</", "s>"}));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->encode("</s>", {}), (std::vector<TokenId>{263, 264}));
  EXPECT_EQ(tokenizer->encode("</s>", {.parse_special = true}), (std::vector<TokenId>{2}));
}

}  // namespace
}  // namespace kvikk
