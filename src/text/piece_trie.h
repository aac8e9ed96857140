#pragma once
// A trie over the bytes of token texts: finds every token that begins at a place in a text, in one
// walk.

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kvikk/token.h"

namespace kvikk {

class PieceTrie {
 public:
  struct Entry {
    std::string_view text;
    TokenId token;
  };
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = 0;  // no edge leads to the root

  // `entries` sorted by text, each text once and none empty. The texts are not kept.
  void build(const std::vector<Entry>& entries);

  // The node after `byte`, or kNone.
  uint32_t next(uint32_t node, unsigned char byte) const;
  // The token whose text ends at the node, or -1.
  TokenId token(uint32_t node) const { return nodes_.empty() ? -1 : nodes_[node].token; }
  bool can_start_with(unsigned char byte) const { return first_bytes_[byte]; }

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t edge_count = 0;
    TokenId token = -1;
  };
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };

  std::vector<Node> nodes_;  // breadth first
  std::vector<Edge> edges_;  // those of a node stand together, by byte
  std::bitset<256> first_bytes_;
};

}  // namespace kvikk
