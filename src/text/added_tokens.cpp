// The trie finds what stands at a place; strips and word edges are the caller's business, because
// they depend on what was found before.
#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace kvikk {

Result<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) {
    // Text that is not UTF-8 is no part of a well-formed text; it could match within a character
    // and tear it.
    return token.text.empty() || !is_valid_utf8(token.text);
  });
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  const auto twin =
      std::adjacent_find(tokens.begin(), tokens.end(),
                         [](const AddedToken& a, const AddedToken& b) { return a.text == b.text; });
  if (twin != tokens.end()) {
    return damaged("tokens " + std::to_string(twin[0].id) + " and " + std::to_string(twin[1].id) +
                   " are both '" + twin[0].text + "'");
  }
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  std::vector<PieceTrie::Entry> entries;
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    entries.push_back({added.tokens_[i].text, static_cast<TokenId>(i)});
  }
  added.trie_.build(entries);
  return added;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!trie_.can_start_with(static_cast<unsigned char>(text[begin]))) continue;
    Match longest;
    uint32_t node = PieceTrie::kRoot;
    for (size_t at = begin; at < text.size(); ++at) {
      node = trie_.next(node, static_cast<unsigned char>(text[at]));
      if (node == PieceTrie::kNone) break;
      const TokenId index = trie_.token(node);
      if (index >= 0) longest = {begin, at + 1, &tokens_[static_cast<size_t>(index)]};
    }
    if (longest.token != nullptr) return longest;
  }
  return {text.size(), text.size(), nullptr};
}

}  // namespace kvikk
