#pragma once
// Finds control and user-defined tokens in a text: at each place the longest, from left to right,
// as the reference tokenizer does. A control token is found also where control tokens are not asked
// for, and is then left as plain text; that decides how overlapping tokens are read.

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kvikk/token.h"
#include "text/vocabulary.h"

namespace kvikk {

class AddedTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId token = -1;  // -1: none was found, and begin is the end of the text
  };

  // `data` has passed check_vocabulary, which bounds a token's length and so the time of a search.
  // kDamaged where two of them have the same name.
  static Result<AddedTokens> create(const VocabularyData& data);

  // The first match at or after `from`.
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t edge_count = 0;
    TokenId token = -1;  // of the string that ends here
  };
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };
  struct Entry {
    std::string_view text;
    TokenId token;
  };

  void build(const std::vector<Entry>& sorted);
  const Edge* find_edge(const Node& node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // those of a node stand together, by byte
  std::bitset<256> first_bytes_;
};

}  // namespace kvikk
