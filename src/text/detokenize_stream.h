#pragma once
// Turns the tokens of an answer into text as they come. Everything it returns is well-formed UTF-8:
// a character that is spread over tokens is held back until it is whole.

#include <string>

#include "kvikk/token.h"
#include "text/tokenizer.h"

namespace kvikk {

struct DetokenizeOptions {
  bool keep_special = false;      // control tokens appear as their names
  bool at_start_of_text = false;  // takes away the space that encode() puts before a text
};

class DetokenizeStream {
 public:
  // `tokenizer` must outlive the stream.
  explicit DetokenizeStream(const Tokenizer& tokenizer, DetokenizeOptions options = {});

  // The text that is complete now and was not returned before; often empty.
  std::string push(TokenId id);

  // What was held back (a cut character, as U+FFFD). The stream is then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DetokenizeOptions options_;
  bool is_begun_;     // the next token is not the first of the text
  std::string held_;  // at most 3 bytes: the beginning of a character
};

}  // namespace kvikk
