// The lexer is one pass over the source. Line numbers count newlines, whatever their spelling.

#include "text/template_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template_ops.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

// All newlines become "\n"; one at the very end is not part of the template.
std::string normalize_newlines(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

int count_newlines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// "\n", "\x41", "\u00e9" ... as in a Python string; what is no escape stays as it is.
class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        out_.push_back(text_[at_++]);
      } else {
        ++at_;
        escape();
      }
    }
    return std::move(out_);
  }

 private:
  void escape() {
    constexpr std::string_view kFrom = "\\'\"abfnrtv";
    constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at_];
    if (const size_t simple = kFrom.find(c); simple != kFrom.npos) {
      out_.push_back(kTo[simple]);
      ++at_;
    } else if (c == '\n') {
      ++at_;
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      hex(c, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      fail_at(line_, "character names (\\N{...}) in strings are not supported");
    } else {
      unknown();
    }
  }

  void octal() {
    uint32_t value = 0;
    for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    append_code_point(out_, value);
  }

  void hex(char kind, size_t digits) {
    uint32_t value = 0;
    const size_t end = std::min(text_.size(), at_ + digits);
    const auto parsed = std::from_chars(text_.data() + at_, text_.data() + end, value, 16);
    if (parsed.ptr != text_.data() + at_ + digits) {
      fail_at(line_, "truncated \\", kind, " escape in a string");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail_at(line_, "\\", kind, " escape in a string is no Unicode character");
    }
    at_ += digits;
    append_code_point(out_, value);
  }

  // A backslash before a character beyond ASCII leaves that character's escape, as Jinja2 does.
  void unknown() {
    const CodePoint c = code_point_at(text_, at_);
    out_.push_back('\\');
    if (c.value < 0x80) {
      out_.push_back(static_cast<char>(c.value));
    } else {
      const int digits = c.value < 0x100 ? 2 : c.value < 0x10000 ? 4 : 8;
      out_.push_back(digits == 2 ? 'x' : digits == 4 ? 'u' : 'U');
      for (int shift = digits * 4 - 4; shift >= 0; shift -= 4) {
        out_.push_back("0123456789abcdef"[c.value >> shift & 15]);
      }
    }
    at_ += c.bytes;
  }

  std::string_view text_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(const std::string& source) : owned_(normalize_newlines(source)), source_(owned_) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    emit(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  bool starts_with(std::string_view text, size_t at) const {
    return source_.substr(std::min(at, source_.size())).substr(0, text.size()) == text;
  }
  char peek(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  size_t skip_space(size_t at) const {
    return source_.size() - strip_left(source_.substr(std::min(at, source_.size()))).size();
  }

  Token& emit(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text)});
    return tokens_.back();
  }

  // Moves to `end`, keeping count of lines; what was passed decides whether a line starts there.
  void advance(size_t end) {
    line_ += count_newlines(source_.substr(at_, end - at_));
    if (end > at_) line_starting_ = source_[end - 1] == '\n';
    at_ = end;
  }

  // Where a "{% raw %}" that starts at `at` ends; 0 where there is none.
  size_t raw_begin_end(size_t at) const {
    size_t i = at + 2;
    if (peek(i) == '-' || peek(i) == '+') ++i;
    i = skip_space(i);
    if (!starts_with("raw", i)) return 0;
    i = skip_space(i + 3);
    if (starts_with("-%}", i)) return skip_space(i + 3);
    return starts_with("%}", i) ? i + 2 : 0;
  }

  // Where an end of a block tag that starts at `at` ends; 0 where there is none.
  size_t block_end(size_t at, std::string_view close) const {
    if (peek(at) == '-' && starts_with(close, at + 1)) return skip_space(at + 1 + close.size());
    if (peek(at) == '+' && starts_with(close, at + 1)) return at + 1 + close.size();
    if (!starts_with(close, at)) return 0;
    const size_t end = at + close.size();
    return peek(end) == '\n' ? end + 1 : end;
  }

  // The text up to a tag, with the white space before the tag that `sign` and the settings take.
  void data(size_t tag, char sign, bool is_variable) {
    std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == text.npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && strip_left(text.substr(line_start)).empty()) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) emit(TokenKind::kData, std::string(text));
    advance(tag);
  }

  void root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == source_.npos) break;
      if (peek(tag + 1) == '%' || peek(tag + 1) == '{' || peek(tag + 1) == '#') break;
    }
    if (tag == source_.npos) {
      emit(TokenKind::kData, std::string(source_.substr(at_)));
      advance(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = peek(tag + 2) == '-' || peek(tag + 2) == '+' ? peek(tag + 2) : '\0';
    const size_t raw_end = kind == '%' ? raw_begin_end(tag) : 0;
    data(tag, sign, kind == '{');
    if (raw_end != 0) {
      advance(raw_end);
      raw();
    } else if (kind == '#') {
      advance(tag + 2 + (sign != '\0'));
      comment();
    } else {
      emit(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin);
      advance(tag + 2 + (sign != '\0'));
      inside(kind == '%');
    }
  }

  void comment() {
    if (at_ == source_.size()) return;
    const size_t close = source_.find("#}", at_);
    if (close == source_.npos) fail_at(line_, "missing end of comment tag");
    const bool signed_end = close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
    advance(block_end(signed_end ? close - 1 : close, "#}"));
  }

  void raw() {
    if (at_ == source_.size()) return;
    for (size_t tag = source_.find("{%", at_); tag != source_.npos;
         tag = source_.find("{%", tag + 1)) {
      size_t i = tag + 2;
      const char sign = peek(i) == '-' || peek(i) == '+' ? peek(i) : '\0';
      i = skip_space(i + (sign != '\0'));
      if (!starts_with("endraw", i)) continue;
      const size_t end = block_end(skip_space(i + 6), "%}");
      if (end == 0) continue;
      data(tag, sign, false);
      advance(end);
      return;
    }
    fail_at(line_, "missing end of raw directive");
  }

  // The tokens of a tag, through its end.
  void inside(bool is_block) {
    std::string open;  // the brackets that wait for their partner
    while (at_ < source_.size()) {
      if (open.empty()) {
        const size_t end = is_block ? block_end(at_, "%}") : variable_end();
        if (end != 0) {
          emit(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
          advance(end);
          return;
        }
      }
      token(open);
    }
  }

  size_t variable_end() const {
    if (starts_with("-}}", at_)) return skip_space(at_ + 3);
    return starts_with("}}", at_) ? at_ + 2 : 0;
  }

  void token(std::string& open) {
    if (const size_t end = skip_space(at_); end != at_) return advance(end);
    if (number() || name() || string()) return;
    bracketed_operator(open);
  }

  // The end of digits that may have single underscores between them.
  template <class IsDigit>
  size_t digits_end(size_t at, IsDigit is_digit_here) const {
    while (is_digit_here(peek(at)) || (peek(at) == '_' && is_digit_here(peek(at + 1)))) ++at;
    return at;
  }

  bool number() {
    const auto decimal = [](char c) { return c >= '0' && c <= '9'; };
    if (!decimal(peek(at_))) return false;
    const size_t whole = digits_end(at_, decimal);
    size_t end = whole;
    if (peek(end) == '.' && decimal(peek(end + 1))) end = digits_end(end + 1, decimal);
    if (peek(end) == 'e' || peek(end) == 'E') {
      const size_t sign = end + 1 + (peek(end + 1) == '+' || peek(end + 1) == '-');
      if (decimal(peek(sign))) end = digits_end(sign, decimal);
    }
    if (end != whole && !(at_ > 0 && source_[at_ - 1] == '.')) {
      const std::string text = without_underscores(end);
      emit(TokenKind::kFloat, text).real = parse_float(text).value_or(0);
      advance(end);
      return true;
    }
    integer();
    return true;
  }

  std::string without_underscores(size_t end) const {
    std::string text(source_.substr(at_, end - at_));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return text;
  }

  void integer() {
    size_t end = at_;
    const char prefix = peek(at_) == '0' ? static_cast<char>(peek(at_ + 1) | 0x20) : '\0';
    const int base = prefix == 'b' ? 2 : prefix == 'o' ? 8 : prefix == 'x' ? 16 : 10;
    const auto in_base = [&](char c) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return digit < base;
    };
    if (base != 10) end = digits_end(at_ + 2, in_base);
    if (base == 10 || end == at_ + 2) {
      // A decimal number has no leading zeros, so "05" is a zero and then a five.
      const bool zero = peek(at_) == '0';
      end = digits_end(at_, [&](char c) { return c >= '0' && c <= (zero ? '0' : '9'); });
    }
    const std::string text = without_underscores(end);
    const auto value = parse_int(text, 0);
    if (!value) fail_at(line_, "the integer ", text, " is beyond 128 bits");
    emit(TokenKind::kInteger, text).integer = value->as_int();
    advance(end);
  }

  bool name() {
    size_t end = at_;
    bool valid = true;
    while (end < source_.size()) {
      const CodePoint c = code_point_at(source_, end);
      if (!is_identifier_part(c.value) && !is_word(c.value)) break;
      valid = valid && (end == at_ ? is_identifier_start(c.value) : is_identifier_part(c.value));
      end += c.bytes;
    }
    if (end == at_) return false;
    if (!valid) fail_at(line_, "invalid character in identifier");
    emit(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
    advance(end);
    return true;
  }

  bool string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      fail_at(line_, "unexpected char ", quote, ": a string without its end");
    }
    emit(TokenKind::kString, Unescaper(source_.substr(at_ + 1, end - at_ - 1), line_).run());
    advance(end + 1);
    return true;
  }

  void bracketed_operator(std::string& open) {
    constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                               "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                               ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view op) { return starts_with(op, at_); });
    if (found == std::end(kOperators)) {
      const CodePoint c = code_point_at(source_, at_);
      fail_at(line_, "unexpected char '", source_.substr(at_, c.bytes), "'");
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail_at(line_, "unexpected '", c, "'");
      if (open.back() != c) {
        fail_at(line_, "unexpected '", c, "', expected '", open.back(), "'");
      }
      open.pop_back();
    }
    emit(TokenKind::kOperator, std::string(*found));
    advance(at_ + found->size());
  }

  std::string owned_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

}  // namespace kvikk::jinja
