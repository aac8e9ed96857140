#include "text_pieces.h"

#include <algorithm>

namespace kvikk {

std::vector<TokenId> text_pieces(const Tokenizer& tokenizer, std::string_view text,
                                 size_t context) {
  std::vector<TokenId> plain = tokenizer.encode(text, {});
  if (!tokenizer.adds_bos() || !tokenizer.bos().has_value()) return plain;
  const size_t piece = context - 1;
  std::vector<TokenId> tokens;
  tokens.reserve(plain.size() + plain.size() / piece + 1);
  for (size_t at = 0; at < plain.size(); at += piece) {
    tokens.push_back(*tokenizer.bos());
    const size_t end = std::min(at + piece, plain.size());
    tokens.insert(tokens.end(), plain.begin() + static_cast<long>(at),
                  plain.begin() + static_cast<long>(end));
  }
  return tokens;
}

}  // namespace kvikk
