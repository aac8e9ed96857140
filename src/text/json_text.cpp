#include "text/json_text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace kvikk {
namespace {

// What follows the comments that begin at `at`.
size_t skip_comments(std::string_view text, size_t at) {
  while (true) {
    const std::string_view begin = text.substr(at, 2);
    if (begin != "//" && begin != "/*") return at;
    const size_t end = begin == "//" ? text.find('\n', at) : text.find("*/", at + 2);
    if (end == std::string_view::npos) return text.size();
    at = end + (begin == "//" ? 1 : 2);
  }
}

// Deep nesting is harmless to the parser but not to everything that walks the result.
bool is_too_deep(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string) i = skip_comments(text, i);
    const char c = i < text.size() ? text[i] : '\0';
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kJsonDepthMax) return true;
    } else if (c == ']' || c == '}') {
      if (depth > 0) --depth;
    }
  }
  return false;
}

// Characters that some readers take for the end of a line.
struct Separator {
  std::string_view character;
  std::string_view escape;
};
constexpr Separator kSeparators[] = {
    {"\u0085", "\\u0085"}, {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}};

// Without the library's own prefix "[json.exception.parse_error.101] ".
std::string short_message(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace

Result<nlohmann::ordered_json> parse_json(std::string_view text, const std::string& where,
                                          JsonComments comments) {
  // The parser would take it for the end and not look at what follows.
  if (text.find('\0') != std::string_view::npos) {
    return damaged(where + ": is not JSON: it has a NUL byte");
  }
  if (is_too_deep(text)) {
    return damaged(where + ": more than " + std::to_string(kJsonDepthMax) +
                   " brackets within each other");
  }
  try {
    return nlohmann::ordered_json::parse(text, nullptr, true, comments == JsonComments::kIgnored);
  } catch (const nlohmann::json::exception& error) {
    return damaged(where + ": is not JSON: " + short_message(error.what()));
  }
}

Result<nlohmann::ordered_json> parse_json_object(std::string_view text, const std::string& where) {
  TRY_ASSIGN(nlohmann::ordered_json json, parse_json(text, where));
  if (!json.is_object()) return damaged(where + ": must be a JSON object, {...}");
  return json;
}

Result<std::vector<TokenId>> json_numbers(const nlohmann::ordered_json& json,
                                          const std::string& where) {
  if (!json.is_array()) return damaged(where + ": must be a list of whole numbers, [1, 2, ...]");
  std::vector<TokenId> numbers;
  numbers.reserve(json.size());
  for (const auto& item : json) {
    const bool fits = item.is_number_unsigned() && item.get<uint64_t>() <= INT32_MAX;
    if (!fits) {
      return damaged(where + ": entry " + std::to_string(numbers.size()) +
                     " must be a whole number from 0 to " + std::to_string(INT32_MAX));
    }
    numbers.push_back(item.get<TokenId>());
  }
  return numbers;
}

std::optional<uint64_t> json_unsigned(const nlohmann::ordered_json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

std::string json_line(const nlohmann::ordered_json& json) {
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const auto* separator = std::find_if(
        std::begin(kSeparators), std::end(kSeparators),
        [&](auto& s) { return text.compare(at, s.character.size(), s.character) == 0; });
    const bool found = separator != std::end(kSeparators);
    line += found ? separator->escape : std::string_view(text).substr(at, 1);
    at += found ? separator->character.size() : 1;
  }
  return line + "\n";
}

}  // namespace kvikk
