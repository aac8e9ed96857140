// Messages name the GGUF key, because that is what a user can look at with any tool.
#include "text/vocabulary.h"

#include <cmath>

namespace kvikk {
namespace {

Status check_count(std::string_view key, size_t count, size_t tokens) {
  if (count == tokens) return ok_status();
  return damaged(std::string(key) + " has " + std::to_string(count) +
                 " entries but the vocabulary has " + std::to_string(tokens) + " tokens");
}

Status check_id(std::string_view key, const std::optional<TokenId>& id, size_t tokens) {
  if (!id.has_value() || (*id >= 0 && static_cast<size_t>(*id) < tokens)) return ok_status();
  return damaged(std::string(key) + " is " + std::to_string(*id) + " but the vocabulary has " +
                 std::to_string(tokens) + " tokens");
}

Status check_token(const VocabularyData& data, size_t id) {
  const std::string& token = data.tokens[id];
  const std::string where = "token " + std::to_string(id);
  const TokenType type = data.types[id];
  if (type < TokenType::kNormal || type > TokenType::kByte) {
    return damaged(where + " has the type " + std::to_string(static_cast<int32_t>(type)) +
                   "; known are 1 to 6");
  }
  const size_t bytes_max = is_added_token(type) ? kAddedTokenBytesMax : kTokenBytesMax;
  if (token.size() > bytes_max) {
    return unsupported(where + " has " + std::to_string(token.size()) + " bytes; at most " +
                       std::to_string(bytes_max) + " are supported for its type");
  }
  if (!data.scores.empty() && std::isnan(data.scores[id])) {
    return damaged("the score of " + where + " is not a number");
  }
  return ok_status();
}

}  // namespace

Status check_vocabulary(VocabularyData* data) {
  const size_t count = data->tokens.size();
  if (count == 0) return damaged("the vocabulary (tokenizer.ggml.tokens) has no tokens");
  if (count > kVocabularyTokensMax) {
    return unsupported("the vocabulary has " + std::to_string(count) + " tokens; at most " +
                       std::to_string(kVocabularyTokensMax) + " are supported");
  }
  if (data->types.empty()) data->types.assign(count, TokenType::kNormal);
  TRY(check_count("tokenizer.ggml.token_type", data->types.size(), count));
  if (!data->scores.empty()) {
    TRY(check_count("tokenizer.ggml.scores", data->scores.size(), count));
  }
  TRY(check_id("tokenizer.ggml.bos_token_id", data->bos, count));
  TRY(check_id("tokenizer.ggml.eos_token_id", data->eos, count));
  TRY(check_id("tokenizer.ggml.eot_token_id", data->eot, count));
  TRY(check_id("tokenizer.ggml.unknown_token_id", data->unk, count));
  TRY(check_id("tokenizer.ggml.padding_token_id", data->pad, count));
  for (const TokenId id : data->end_tokens) TRY(check_id("eos_token_id", id, count));
  for (size_t id = 0; id < count; ++id) TRY(check_token(*data, id));
  return ok_status();
}

Status duplicate_token(const VocabularyData& data, TokenId first, TokenId second) {
  return damaged("tokens " + std::to_string(first) + " and " + std::to_string(second) +
                 " are both '" + data.tokens[second] + "'");
}

bool can_come_from_text(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined;
}

bool is_added_token(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         type == TokenType::kUserDefined;
}

}  // namespace kvikk
