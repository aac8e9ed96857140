#pragma once
// Splits a template into text, tags and the tokens inside tags, with Jinja's rules for white space:
// "-" strips all of it, a block tag alone on its line takes that line's indentation and newline
// with it (lstrip_blocks, trim_blocks), "+" keeps it.

#include <string>
#include <string_view>
#include <vector>

#include "text/template_value.h"

namespace kvikk::jinja {

enum class TokenKind : unsigned char {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // a string's content is unescaped
  Int integer = 0;
  double real = 0;

  bool is(TokenKind k) const { return kind == k; }
  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// The last token is always kEnd. Throws Error with its line.
std::vector<Token> tokenize(const std::string& source);

}  // namespace kvikk::jinja
