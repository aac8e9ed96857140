#pragma once
// A place in the text of a regular expression, with what both of its parsers read alike:
// characters, numbers, ranges of repetitions, code points in hexadecimal and names in braces.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/utf8.h"

namespace kvikk {

class RegexCursor {
 public:
  static constexpr uint32_t kRepetitionsMax = 1000;

  explicit RegexCursor(std::string_view regex) : regex_(regex) {}

 protected:
  struct Range {
    uint32_t min = 0;
    uint32_t max = UINT32_MAX;
  };

  // kUnsupported for a text that no expression is.
  Status check_text(size_t bytes_max) const {
    if (regex_.empty()) return error("it is empty");
    if (regex_.size() > bytes_max) return error("it is too long");
    if (!is_valid_utf8(regex_)) return error("it is not UTF-8");
    return ok_status();
  }

  Status error(std::string_view what) const {
    return unsupported("regular expression '" + std::string(regex_) + "', byte " +
                       std::to_string(at_) + ": " + std::string(what));
  }

  bool at_end() const { return at_ == regex_.size(); }
  char peek() const { return at_end() ? '\0' : regex_[at_]; }
  bool peek(std::string_view token) const { return regex_.substr(at_, token.size()) == token; }
  bool take(std::string_view token) {
    if (!peek(token)) return false;
    at_ += token.size();
    return true;
  }
  char32_t take_char() {
    const DecodedChar c = decode_valid_utf8(regex_.data() + at_);
    at_ += c.bytes;
    return c.code_point;
  }
  // In a class: a '-' that stands between two characters.
  bool at_range_dash() const {
    return peek() == '-' && at_ + 1 < regex_.size() && regex_[at_ + 1] != ']';
  }
  // What stands before `end`, which is taken as well.
  Result<std::string_view> take_until(std::string_view end, std::string_view what_is_missing) {
    const size_t close = regex_.find(end, at_);
    if (close == std::string_view::npos) return error(what_is_missing);
    const std::string_view text = regex_.substr(at_, close - at_);
    at_ = close + end.size();
    return text;
  }

  Result<uint32_t> parse_number() {
    uint32_t number = 0;
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + static_cast<uint32_t>(take_char() - '0');
      if (number > kRepetitionsMax) return error("too many repetitions");
    }
    if (at_ == start) return error("a number is missing");
    return number;
  }

  // After the '{': n} n,} n,m} and, for 0 to m, ,m}.
  Result<Range> parse_range() {
    Range range;
    const bool has_min = peek() != ',';
    if (has_min) {
      TRY_ASSIGN(range.min, parse_number());
    }
    const bool is_one_number = !take(",");
    if (is_one_number) range.max = range.min;
    if (!is_one_number && (!has_min || peek() != '}')) {
      TRY_ASSIGN(range.max, parse_number());
    }
    if (!take("}")) return error("a '{' without '}'");
    if (range.max == 0 || range.min > range.max) return error("an empty range of repetitions");
    return range;
  }

  // A Unicode scalar value in hexadecimal.
  Result<char32_t> parse_hex(size_t digits_min, size_t digits_max) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < digits_max; ++digits) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        break;
      }
      ++at_;
    }
    const bool is_scalar = value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
    if (digits < digits_min || !is_scalar) return error("not a character's number");
    return value;
  }

 private:
  std::string_view regex_;
  size_t at_ = 0;
};

}  // namespace kvikk
