#pragma once
// The prefix cache: which blocks of 64 tokens, following which others, have their pages in the
// pool. A path from the root is a prefix; sequences that begin alike share its slabs.
//
// It holds one reference on each slab. When the pool runs short, the least recently used leaves go
// first: to the disk, where there is a PrefixStore, and come back from there when they are asked
// for.

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/prefix_store.h"
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

  // Takes up, behind the whole blocks that attach() gave, what a known block or part of one has in
  // common with `tokens` up to tokens_max; its slabs are copied when the sequence writes to them.
  // Returns the sequence's length.
  size_t extend(std::span<const TokenId> tokens, size_t tokens_max, SequenceKv& sequence,
                uint64_t salt = 0);

  // Remembers the whole blocks that `sequence` has stored of `tokens`, from block `first` on, which
  // an earlier call returned (0 at first). Returns the number of blocks now known.
  size_t insert(std::span<const TokenId> tokens, size_t first, const SequenceKv& sequence,
                uint64_t salt = 0);

  // Remembers the part of a block that a prompt ends with, behind whole ones that insert() knows:
  // all tokens that `sequence` has stored. Only extend() finds it.
  void insert_part(std::span<const TokenId> tokens, const SequenceKv& sequence, uint64_t salt = 0);

  // Gives back slabs of a group until `count` are free or nothing is left to give.
  void make_free(size_t group, size_t count);

  // From now on, what memory has no room for goes there, and at the end all that is left. To be
  // called before anything is inserted.
  void set_store(std::unique_ptr<PrefixStore> store);
  const PrefixStore* store() const { return store_.get(); }
  // Reads the longest prefix of `tokens` that the store has, up to tokens_max tokens, and at most
  // bytes_max bytes (but a block). Whether there is more, for a later call.
  bool restore(std::span<const TokenId> tokens, size_t tokens_max, uint64_t salt,
               uint64_t bytes_max);

  size_t blocks() const { return nodes_; }
  // Slabs of a group that it holds; counts them.
  size_t slabs(size_t group) const;
  void clear();

 private:
  struct Node {
    Node* parent = nullptr;
    std::vector<TokenId> tokens;  // 64, or fewer of a part, which has no children
    uint64_t hash = 0;
    BlockKey key;               // where there is a store
    std::vector<SlabId> slabs;  // [groups]
    std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;
    std::list<Node*>::iterator age;  // in ages_
  };

  // The node of the first `length` tokens, whole blocks; null where it is not known.
  Node* find_path(std::span<const TokenId> tokens, size_t length, uint64_t salt);
  Node* find_child(Node& node, std::span<const TokenId> block, uint64_t hash);
  BlockKey key_below(const Node& node, std::span<const TokenId> block, uint64_t salt) const;
  Node& add_child(Node& node, std::span<const TokenId> block, uint64_t hash, const BlockKey& key);
  Node* read_child(Node& node, std::span<const TokenId> block, uint64_t hash, const BlockKey& key,
                   uint32_t groups);
  SlabId free_slab(size_t group, const Node& kept);
  void touch(Node& node);
  // Its block goes to the store, where there is one; `wait`: also where that is busy.
  void remove(Node& leaf, bool wait = false);
  Node* oldest_leaf(size_t group);
  bool strip_oldest(size_t group);

  PagePool& pool_;
  std::unique_ptr<PrefixStore> store_;
  Node root_;
  size_t nodes_ = 0;
  std::list<Node*> ages_;  // least recently used first
};

}  // namespace kvikk
