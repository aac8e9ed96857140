#pragma once
// A text as the evaluations read it.

#include <string_view>
#include <vector>

#include "kvikk/token.h"
#include "text/tokenizer.h"

namespace kvikk {

inline constexpr size_t kTextBytesMax = size_t{1} << 30;

// The tokens of a text in pieces of `context`; each begins with the model's BOS where it has one.
std::vector<TokenId> text_pieces(const Tokenizer& tokenizer, std::string_view text, size_t context);

}  // namespace kvikk
