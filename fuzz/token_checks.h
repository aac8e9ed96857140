#pragma once
// What a tokenizer promises about any text; shared by the fuzz targets.

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenize_stream.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace kvikk {

// Tokens are in the vocabulary, none is special unless asked for, and the stream of their texts is
// the text that decode() gives.
inline void check_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                         bool parse_special) {
  DetokenizeStream stream(tokenizer, {.keep_special = true, .at_start_of_text = true});
  std::string text;
  for (const TokenId id : ids) {
    CHECK(id >= 0);
    CHECK(static_cast<size_t>(id) < tokenizer.size());
    const bool plain = !tokenizer.is_control(id) || tokenizer.unk() == id;
    CHECK(plain || parse_special);
    text += stream.push(id);
  }
  text += stream.finish();
  CHECK(is_valid_utf8(text));
  CHECK(text == tokenizer.decode(ids, true));
}

// `text` is any bytes.
inline void check_encoding(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {false, true}) {
    const std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = parse_special});
    check_tokens(tokenizer, ids, parse_special);
    if (is_valid_utf8(text)) continue;
    CHECK(ids == tokenizer.encode(replace_invalid_utf8(text), {.parse_special = parse_special}));
  }
}

}  // namespace kvikk
