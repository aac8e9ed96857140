#pragma once
// Reads the text of a tokenizer.json. Vocabulary and merges, which are nearly all of it, go
// straight into lists; the rest becomes a JSON document.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kvikk {

struct TokenizerJsonFile {
  nlohmann::json rest;  // without model.vocab and model.merges
  bool has_vocab = false;
  bool has_merges = false;
  std::vector<std::pair<std::string, int64_t>> ids;    // model.vocab as an object: token and id
  std::vector<std::pair<std::string, double>> scores;  // or as a list: token and score
  std::vector<std::string> merges;                     // both tokens with merge_separator between
  char merge_separator = ' ';                          // zero where they were lists of two
};

inline constexpr size_t kTokenizerJsonDepthMax = 64;

// `name` is the file's, for messages. kDamaged where the text is no JSON object or the lists are
// not made as they must be.
Result<TokenizerJsonFile> read_tokenizer_json(std::string_view name, std::string_view text);

// Any other JSON file: an object, at most kTokenizerJsonDepthMax deep.
Result<nlohmann::json> read_json_object(std::string_view name, std::string_view text);

}  // namespace kvikk
