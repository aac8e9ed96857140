// SentencePiece models: read from their own file, and as GGUF vocabularies of T5 and BERT.
#include "text/sentencepiece_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/base64.h"
#include "text/piece_bpe.h"
#include "text/tokenizer_json.h"

namespace kvikk {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

std::string read_file(const std::string& path) {
  std::ifstream file(std::string(KVIKK_TEST_DATA) + "/tokenizers/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Json> read_lines(const std::string& path) {
  std::istringstream lines(read_file(path));
  std::vector<Json> list;
  for (std::string line; std::getline(lines, line);) list.push_back(Json::parse(line));
  EXPECT_GT(list.size(), 20u);
  return list;
}

TEST(SentencepieceTest, Goldens) {
  for (const std::string kind : {"spm-bpe", "spm-unigram"}) {
    TokenizerFiles files;
    files.folder = "model";
    files.tokenizer_config = R"({"add_bos_token": true, "add_eos_token": true})";
    const Result<Tokenizer> tokenizer = tokenizer_from_sentencepiece(
        files, read_file("sentencepiece/" + kind + "/tokenizer.model"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ(tokenizer->encode("", {.add_bos_eos = true}), (Ids{1, 2}));
    for (const Json& golden : read_lines("sentencepiece/" + kind + "/goldens.jsonl")) {
      const std::string text = golden["text"];
      const Ids ids = golden["ids"];
      EXPECT_EQ(tokenizer->encode(text, {}), ids) << kind << ": " << text;
      if (!golden.contains("decoded")) continue;
      EXPECT_EQ(tokenizer->decode(ids, false), std::string(golden["decoded"])) << text;
    }
  }
}

TEST(SentencepieceTest, DamagedFilesAreRefusedOrHarmless) {
  const std::string whole = read_file("sentencepiece/spm-bpe/tokenizer.model");
  for (size_t size = 0; size < whole.size(); size += 7) {
    const Result<VocabularyData> data = read_sentencepiece("x", whole.substr(0, size));
    if (data.ok()) continue;
    EXPECT_NE(data.status().message().find("x: "), std::string::npos);
  }
  std::string changed = whole;
  for (size_t at = 0; at < 2000; ++at) {
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    Result<VocabularyData> data = read_sentencepiece("x", changed);
    if (data.ok()) (void)Tokenizer::create(std::move(*data));
    changed[at] = whole[at];
  }
}

TEST(SentencepieceTest, AddedTokensOfTheConfig) {
  TokenizerFiles files;
  files.folder = "model";
  const std::string model = read_file("sentencepiece/spm-bpe/tokenizer.model");
  const size_t size = read_sentencepiece("x", model)->tokens.size();
  const std::string token = R"(": {"content": "<|tool|>", "special": true}}})";
  files.tokenizer_config = R"({"added_tokens_decoder": {")" + std::to_string(size) + token;
  const Result<Tokenizer> tokenizer = tokenizer_from_sentencepiece(files, model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->find_token("<|tool|>"), static_cast<TokenId>(size));
  files.tokenizer_config = R"({"added_tokens_decoder": {")" + std::to_string(size + 5) + token;
  EXPECT_FALSE(tokenizer_from_sentencepiece(files, model).ok());
  files.tokenizer_config = R"({"added_tokens_decoder": {"7)" + token;
  EXPECT_NE(tokenizer_from_sentencepiece(files, model).status().message().find("is '<|tool|>' but"),
            std::string::npos);
}

// The vocabulary of a tokenizer.json as a converter writes it to GGUF.
VocabularyData as_gguf(const Json& json, const char* model) {
  VocabularyData data;
  data.model = model;
  const Json& vocab = json["model"]["vocab"];
  data.tokens.resize(vocab.size());
  data.types.resize(vocab.size(), TokenType::kNormal);
  if (vocab.is_array()) {
    for (size_t i = 0; i < vocab.size(); ++i) {
      data.tokens[i] = vocab[i][0];
      data.scores.push_back(vocab[i][1]);
    }
  } else {
    for (const auto& [token, id] : vocab.items()) data.tokens[id.get<size_t>()] = token;
  }
  for (const Json& added : json["added_tokens"]) {
    data.types[added["id"].get<size_t>()] = TokenType::kControl;
  }
  return data;
}

void expect_goldens(const Tokenizer& tokenizer, const std::string& kind) {
  const std::vector<Json> goldens = read_lines("json/" + kind + "/goldens.jsonl");
  for (size_t i = 1; i < goldens.size(); ++i) {
    const std::string text = goldens[i]["text"];
    // What GGUF does not say: the golden's words have at most 40 characters, WordPiece's 100.
    if (kind == "bert-cased" && (text.find("aaaa") == 0 || text.find("abab") == 0)) continue;
    const Ids ids = goldens[i]["ids"];
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids, false), std::string(goldens[i]["decoded"])) << text;
  }
  Ids whole = goldens[0]["prefix"];
  for (const TokenId id : tokenizer.encode("a", {})) whole.push_back(id);
  for (const TokenId id : Ids(goldens[0]["suffix"])) whole.push_back(id);
  EXPECT_EQ(tokenizer.encode("a", {.add_bos_eos = true}), whole);
}

TEST(GgufVocabularyTest, T5) {
  const Json json = Json::parse(read_file("json/xlmr/tokenizer.json"));
  VocabularyData data = as_gguf(json, "t5");
  data.charsmap = *decode_base64(
      json["normalizer"]["normalizers"][0]["precompiled_charsmap"].get<std::string>());
  data.unk = json["model"]["unk_id"];
  data.types[*data.unk] = TokenType::kUnknown;
  data.bos = 0;
  data.eos = 1;
  data.add_bos = true;
  const Result<Tokenizer> tokenizer = Tokenizer::create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  expect_goldens(*tokenizer, "xlmr");
}

TEST(GgufVocabularyTest, Bert) {
  VocabularyData data = as_gguf(Json::parse(read_file("json/bert-cased/tokenizer.json")), "bert");
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.types[id] == TokenType::kControl) continue;
    std::string& token = data.tokens[id];
    token = token.starts_with("##") ? token.substr(2) : std::string(PieceBpe::kSpaceMark) + token;
  }
  data.unk = 1;
  data.bos = 2;
  data.eos = 3;
  const Result<Tokenizer> tokenizer = Tokenizer::create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("dogs.", {}).size(), 3u);
  expect_goldens(*tokenizer, "bert-cased");
}

}  // namespace
}  // namespace kvikk
