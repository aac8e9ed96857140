#include "engine/chat_prompt.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "text/utf8.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

// Code points that no text uses (they are for use inside programs): one becomes the mark.
constexpr char32_t kMarksBegin = 0xFDD0;
constexpr char32_t kMarksEnd = 0xFDF0;
// Taking one control token apart can leave another that overlapped it.
constexpr int kRoundsMax = 16;

std::string utf8(char32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  return text;
}

// Calls f on every string of the value, keys included.
template <class F>
Status for_each_string(Json& value, const F& f) {
  if (value.is_string()) return f(value.get_ref<std::string&>());
  if (value.is_array()) {
    for (Json& item : value) TRY(for_each_string(item, f));
  }
  if (value.is_object()) {
    for (auto& [key, item] : value.get_ref<Json::object_t&>()) TRY(for_each_string(item, f));
  }
  return ok_status();
}

// The control tokens that the text spells.
std::set<TokenId> spelled_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::set<TokenId> found;
  EncodeOptions options;
  options.parse_special = true;
  for (const TokenId token : tokenizer.encode(text, options)) {
    if (!tokenizer.is_control(token) || found.count(token) > 0) continue;
    // Unknown text also encodes to a control token, without spelling it.
    const std::string_view name = tokenizer.token_bytes(token);
    if (!name.empty() && text.find(name) != std::string::npos) found.insert(token);
  }
  return found;
}

Status mark_text(const Tokenizer& tokenizer, const std::string& mark, std::string& text) {
  for (int round = 0; round < kRoundsMax; ++round) {
    const std::set<TokenId> spelled = spelled_tokens(tokenizer, text);
    if (spelled.empty()) return ok_status();
    for (const TokenId token : spelled) {
      const std::string name(tokenizer.token_bytes(token));
      const size_t first = decode_utf8(name.data(), name.data() + name.size()).bytes;
      for (size_t at = text.find(name); at != std::string::npos;
           at = text.find(name, at + name.size())) {
        text.insert(at + first, mark);
      }
    }
  }
  return exhausted("a message spells control tokens within each other more than " +
                   std::to_string(kRoundsMax) + " deep");
}

// Marks every string of `conversation`, and returns the mark.
Result<std::string> mark_conversation(const Tokenizer& tokenizer, Json& conversation) {
  std::string mark;
  for (char32_t c = kMarksBegin; c < kMarksEnd && mark.empty(); ++c) {
    mark = utf8(c);
    TRY(for_each_string(conversation, [&](std::string& text) {
      if (text.find(mark) != std::string::npos) mark.clear();
      return ok_status();
    }));
  }
  if (mark.empty()) return exhausted("the messages use all code points from U+FDD0 to U+FDEF");
  TRY(for_each_string(conversation,
                      [&](std::string& text) { return mark_text(tokenizer, mark, text); }));
  return mark;
}

}  // namespace

Json token_variables(const Tokenizer& tokenizer) {
  Json variables = Json::object();
  const auto add = [&](const char* name, std::optional<TokenId> token) {
    if (token.has_value()) variables[name] = std::string(tokenizer.token_bytes(*token));
  };
  add("bos_token", tokenizer.bos());
  add("eos_token", tokenizer.eos());
  add("unk_token", tokenizer.unk());
  add("pad_token", tokenizer.pad());
  return variables;
}

Result<std::vector<TokenId>> encode_conversation(const Tokenizer& tokenizer,
                                                 const Template& chat_template, Json conversation) {
  TRY_ASSIGN(const std::string mark, mark_conversation(tokenizer, conversation));
  Json variables = token_variables(tokenizer);
  variables.update(conversation);
  variables["add_generation_prompt"] = true;
  TRY_ASSIGN(const std::string text, chat_template.render(variables));
  EncodeOptions options;
  options.parse_special = true;  // the template's own; it also writes what begins a text
  std::vector<TokenId> tokens;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    const auto part = tokenizer.encode(std::string_view(text).substr(at, end - at), options);
    tokens.insert(tokens.end(), part.begin(), part.end());
    at = end + mark.size();
  }
  return tokens;
}

std::vector<TokenId> encode_text(const Tokenizer& tokenizer, std::string_view text, bool special) {
  EncodeOptions options;
  options.parse_special = special;
  options.add_bos_eos = true;
  std::vector<TokenId> tokens = tokenizer.encode(text, options);
  if (tokenizer.adds_eos() && !tokens.empty()) tokens.pop_back();  // the model is to go on
  return tokens;
}

}  // namespace kvikk
