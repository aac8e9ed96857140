// Built from sorted texts level by level, so that the nodes of a level and the edges of a node
// stand together.
#include "text/piece_trie.h"

#include <algorithm>

namespace kvikk {

void PieceTrie::build(const std::vector<Entry>& entries) {
  struct Pending {
    size_t begin;  // of the entries that share the node's prefix
    size_t end;
    size_t depth;
  };
  nodes_.assign(1, Node());
  edges_.clear();
  std::vector<Pending> pending = {{0, entries.size(), 0}};  // one for each node, in the same order
  for (size_t i = 0; i < pending.size(); ++i) {
    auto [begin, end, depth] = pending[i];
    if (begin < end && entries[begin].text.size() == depth) {
      nodes_[i].token = entries[begin++].token;
    }
    nodes_[i].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = entries[begin].text[depth];
      size_t next = begin;
      while (next < end && entries[next].text[depth] == byte) ++next;
      edges_.push_back({static_cast<unsigned char>(byte), static_cast<uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      pending.push_back({begin, next, depth + 1});
      if (i == 0) first_bytes_.set(static_cast<unsigned char>(byte));
      begin = next;
    }
    nodes_[i].edge_count = static_cast<uint32_t>(edges_.size()) - nodes_[i].first_edge;
  }
}

uint32_t PieceTrie::next(uint32_t node, unsigned char byte) const {
  if (nodes_.empty()) return kNone;
  const Edge* first = edges_.data() + nodes_[node].first_edge;
  const Edge* last = first + nodes_[node].edge_count;
  const Edge* edge = std::lower_bound(first, last, byte,
                                      [](const Edge& e, unsigned char b) { return e.byte < b; });
  return edge != last && edge->byte == byte ? edge->node : kNone;
}

}  // namespace kvikk
