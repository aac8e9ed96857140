#pragma once
// The prefix cache: which blocks of 64 tokens, following which others, have their pages in the
// pool. A path from the root is a prefix; sequences that begin alike share its slabs.
//
// It holds one reference on each slab. When the pool runs short, the least recently used leaves go
// first.

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/sequence_kv.h"
#include "kvikk/token.h"

namespace kvikk {

class PrefixTree {
 public:
  explicit PrefixTree(PagePool& pool);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Appends to the empty `sequence` the longest known prefix of `tokens`, but at most tokens_max
  // tokens. Returns its length, a multiple of 64. `salt`: only what was inserted with the same one
  // is found, so that clients cannot learn by time what others asked.
  size_t attach(std::span<const TokenId> tokens, size_t tokens_max, SequenceKv& sequence,
                uint64_t salt = 0);

  // Remembers the whole blocks that `sequence` has stored of `tokens`, from block `first` on, which
  // an earlier call returned (0 at first). Returns the number of blocks now known.
  size_t insert(std::span<const TokenId> tokens, size_t first, const SequenceKv& sequence,
                uint64_t salt = 0);

  // Gives back slabs of a group until `count` are free or nothing is left to give.
  void make_free(size_t group, size_t count);

  size_t blocks() const { return nodes_; }
  // Slabs of a group that it holds; counts them.
  size_t slabs(size_t group) const;
  void clear();

 private:
  struct Node {
    Node* parent = nullptr;
    std::vector<TokenId> tokens;  // [64]
    uint64_t hash = 0;
    std::vector<SlabId> slabs;  // [groups]
    std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;
    std::list<Node*>::iterator age;  // in ages_
  };

  Node* find_child(Node& node, std::span<const TokenId> block, uint64_t hash);
  void touch(Node& node);
  void remove(Node& leaf);
  Node* oldest_leaf(size_t group);
  bool strip_oldest(size_t group);

  PagePool& pool_;
  Node root_;
  size_t nodes_ = 0;
  std::list<Node*> ages_;  // least recently used first
};

}  // namespace kvikk
