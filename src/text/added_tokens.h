#pragma once
// Finds control and user-defined tokens in a text: at each place the longest, from left to right,
// as the reference tokenizer does. A control token is found also where control tokens are not asked
// for, and is then left as plain text; that decides how overlapping tokens are read.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kvikk/token.h"
#include "text/piece_trie.h"
#include "text/vocabulary.h"

namespace kvikk {

// One such token and how much around it belongs to it.
struct AddedToken {
  TokenId id = -1;
  std::string text;
  bool lstrip = false;       // the white space before it is dropped
  bool rstrip = false;       // and after it
  bool single_word = false;  // found only where no word character touches it
};

class AddedTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;  // null: none was found, and begin is the end of the text
  };

  // Tokens without text, or whose text is not UTF-8, are never found. kDamaged where two have the
  // same text. Texts are at most kAddedTokenBytesMax, which bounds the time of a search.
  static Result<AddedTokens> create(std::vector<AddedToken> tokens);

  // The first match at or after `from`.
  Match find(std::string_view text, size_t from) const;
  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;  // sorted by text
  PieceTrie trie_;                  // its ids are indices into tokens_
};

}  // namespace kvikk
