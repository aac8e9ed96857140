#pragma once
// Vocabularies for tests: excerpts of published ones with the reference library's ids (made by
// tests/data/tokenizers/make_excerpts.py), and small ones made on the spot.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/vocabulary.h"

namespace kvikk {

inline const std::vector<std::string>& excerpt_names() {
  static const std::vector<std::string> names = {"deepseek-llm",  "falcon",  "gemma3",
                                                 "gpt-2",         "phi-3",   "llama-spm",
                                                 "qwen2.5-coder", "smollm2", "starcoder"};
  return names;
}

struct ExcerptCase {
  std::string text;
  std::vector<TokenId> ids;          // special tokens in the text are plain text
  std::vector<TokenId> ids_special;  // they are parsed
};

struct Excerpt {
  VocabularyData data;
  std::vector<ExcerptCase> cases;
};

inline Excerpt load_excerpt(const std::string& name) {
  std::ifstream file(std::string(KVIKK_TEST_DATA) + "/tokenizers/" + name + ".json");
  const nlohmann::json json = nlohmann::json::parse(file);
  Excerpt excerpt;
  VocabularyData& data = excerpt.data;
  data.model = json["model"];
  data.pre = json["pre"];
  data.architecture = json["architecture"];
  const size_t size = json["size"];
  // Ids that the excerpt leaves out.
  for (size_t id = 0; id < size; ++id)
    data.tokens.push_back("[left out " + std::to_string(id) + "]");
  data.types.assign(size, TokenType::kUnused);
  if (data.model == "llama") data.scores.assign(size, 0.0f);
  for (const auto& token : json["tokens"]) {
    const size_t id = token[0];
    data.tokens[id] = token[1];
    data.types[id] = static_cast<TokenType>(token[2].get<int>());
    if (data.model == "llama") data.scores[id] = token[3];
  }
  data.merges = json["merges"];
  if (json.contains("bos")) data.bos = json["bos"].get<TokenId>();
  if (json.contains("eos")) data.eos = json["eos"].get<TokenId>();
  if (json.contains("unk")) data.unk = json["unk"].get<TokenId>();
  if (json.contains("add_bos")) data.add_bos = json["add_bos"].get<bool>();
  if (json.contains("add_space_prefix"))
    data.add_space_prefix = json["add_space_prefix"].get<bool>();
  for (const auto& c : json["cases"]) {
    excerpt.cases.push_back({c["text"], c["ids"], c["ids_special"]});
  }
  return excerpt;
}

// Byte-level: the 26 letters, space ("Ġ"), the given merges with their results, one control token
// "<end>" and one user-defined token "<call>".
inline VocabularyData small_byte_vocabulary(const std::vector<std::string>& merges) {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  for (char c = 'a'; c <= 'z'; ++c) data.tokens.emplace_back(1, c);
  data.tokens.emplace_back("\u0120");
  data.merges = merges;
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    data.tokens.push_back(joined);
  }
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  data.tokens.emplace_back("<end>");
  data.types.push_back(TokenType::kControl);
  data.eos = static_cast<TokenId>(data.tokens.size() - 1);
  data.tokens.emplace_back("<call>");
  data.types.push_back(TokenType::kUserDefined);
  return data;
}

// SentencePiece: <unk>, <s>, </s>, the 256 bytes, then the pieces, best first.
inline VocabularyData small_piece_vocabulary(const std::vector<std::string>& pieces) {
  VocabularyData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "</s>"};
  data.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    data.tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    data.types.push_back(TokenType::kByte);
  }
  data.scores.assign(data.tokens.size(), 0.0f);
  for (const std::string& piece : pieces) {
    data.scores.push_back(-static_cast<float>(data.scores.size()));
    data.tokens.push_back(piece);
    data.types.push_back(TokenType::kNormal);
  }
  data.unk = 0;
  data.bos = 1;
  data.eos = 2;
  data.add_space_prefix = false;
  return data;
}

}  // namespace kvikk
