// A folder with a SentencePiece model: the vocabulary is the model's, the rest
// tokenizer_config.json's.
#include <map>

#include "text/json_place.h"
#include "text/sentencepiece_file.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_json_file.h"

namespace kvikk {
namespace {

// {"32000": {"content": "<|end|>", "special": true}}: behind the model's pieces, or in their place.
Status read_added_tokens(const JsonPlace& config, VocabularyData* data) {
  if (!config.has("added_tokens_decoder")) return ok_status();
  TRY_ASSIGN(const JsonPlace tokens, config.at("added_tokens_decoder"));
  if (!tokens.value().is_object()) return tokens.damaged("is not an object");
  std::map<size_t, std::string> keys;  // in the order of their numbers
  for (const auto& [key, value] : tokens.value().items()) {
    constexpr size_t kDigitsMax = 8;
    const bool is_number = !key.empty() && key.size() <= kDigitsMax &&
                           key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) return tokens.damaged("has the key '" + key + "', which is no id");
    keys[std::stoul(key)] = key;
  }
  for (const auto& [id, key] : keys) {
    TRY_ASSIGN(const JsonPlace token, tokens.at(key));
    TRY_ASSIGN(std::string text, token.text("content"));
    TRY_ASSIGN(const bool special, token.flag("special", false));
    const TokenType type = special ? TokenType::kControl : TokenType::kUserDefined;
    if (id < data->tokens.size()) {
      if (data->tokens[id] != text) {
        return token.damaged("is '" + text + "' but in the model it is '" + data->tokens[id] + "'");
      }
      if (data->types[id] != TokenType::kUnknown) data->types[id] = type;
      continue;
    }
    if (id != data->tokens.size()) return token.damaged("leaves ids out before it");
    data->tokens.push_back(std::move(text));
    data->types.push_back(type);
    data->scores.push_back(0);
  }
  return ok_status();
}

}  // namespace

Result<Tokenizer> tokenizer_from_sentencepiece(const TokenizerFiles& files,
                                               std::string_view sentencepiece) {
  const std::string name = files.folder + "/tokenizer.model";
  TRY_ASSIGN(VocabularyData data, read_sentencepiece(name, sentencepiece));
  data.add_bos = data.model == "llama";
  data.add_eos = data.model == "t5";
  if (!files.tokenizer_config.empty()) {
    const std::string path = files.folder + "/tokenizer_config.json";
    TRY_ASSIGN(const JsonPlace::Json json, read_json_object(path, files.tokenizer_config));
    const JsonPlace config(json, path + ": ");
    TRY_ASSIGN(data.add_bos, config.flag("add_bos_token", *data.add_bos));
    TRY_ASSIGN(data.add_eos, config.flag("add_eos_token", *data.add_eos));
    TRY(read_added_tokens(config, &data));
  }
  for (std::optional<TokenId>* id : {&data.unk, &data.bos, &data.eos, &data.pad}) {
    const bool exists = id->has_value() && static_cast<size_t>(**id) < data.tokens.size();
    if (!exists) id->reset();
  }
  Result<Tokenizer> tokenizer = Tokenizer::create(std::move(data));
  if (tokenizer.ok()) return tokenizer;
  return Status(tokenizer.status().code(), name + ": " + tokenizer.status().message());
}

}  // namespace kvikk
