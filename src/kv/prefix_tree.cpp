#include "kv/prefix_tree.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace kvikk {

namespace {

// A shorter part of a block is not worth a slab.
constexpr size_t kPartTokensMin = 8;

uint64_t block_hash(std::span<const TokenId> block, uint64_t salt) {
  return XXH3_64bits_withSeed(block.data(), block.size_bytes(), salt);
}

}  // namespace

PrefixTree::PrefixTree(PagePool& pool) : pool_(pool) {}

PrefixTree::~PrefixTree() { clear(); }

void PrefixTree::set_store(std::unique_ptr<PrefixStore> store) {
  CHECK(nodes_ == 0);
  store_ = std::move(store);
}

void PrefixTree::clear() {
  while (!ages_.empty()) {
    // A walk from the oldest always meets a leaf: the list holds every node.
    for (Node* node : ages_) {
      if (!node->children.empty()) continue;
      remove(*node, true);
      break;
    }
  }
}

PrefixTree::Node* PrefixTree::find_child(Node& node, std::span<const TokenId> block,
                                         uint64_t hash) {
  const auto [first, last] = node.children.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (std::ranges::equal(block, it->second->tokens)) return it->second.get();
  }
  return nullptr;
}

BlockKey PrefixTree::key_below(const Node& node, std::span<const TokenId> block,
                               uint64_t salt) const {
  if (store_ == nullptr) return {};
  return PrefixStore::key_of(&node == &root_ ? nullptr : &node.key, block, salt);
}

PrefixTree::Node& PrefixTree::add_child(Node& node, std::span<const TokenId> block, uint64_t hash,
                                        const BlockKey& key) {
  auto made = std::make_unique<Node>();
  Node& child = *made;
  child.parent = &node;
  child.tokens.assign(block.begin(), block.end());
  child.hash = hash;
  child.key = key;
  child.slabs.assign(pool_.shape().groups.size(), kNoSlab);
  child.age = ages_.insert(ages_.end(), &child);
  node.children.emplace(hash, std::move(made));
  ++nodes_;
  return child;
}

// kNoSlab where only running sequences and `kept` could give one.
SlabId PrefixTree::free_slab(size_t group, const Node& kept) {
  while (pool_.free_slabs(group) == 0) {
    Node* leaf = oldest_leaf(group);
    if (leaf == nullptr || leaf == &kept) return kNoSlab;
    const SlabId slab = leaf->slabs[group];
    if (slab == kNoSlab || pool_.references(group, slab) > 1) return kNoSlab;
    remove(*leaf);
  }
  return pool_.allocate(group);
}

// The block behind `node`, whose `groups` the store has; null where it cannot be read, or there is
// no room.
PrefixTree::Node* PrefixTree::read_child(Node& node, std::span<const TokenId> block, uint64_t hash,
                                         const BlockKey& key, uint32_t groups) {
  std::vector<SlabId> slabs(pool_.shape().groups.size(), kNoSlab);
  bool whole = true;
  for (size_t g = 0; g < slabs.size() && whole; ++g) {
    if ((groups >> g & 1) == 0) continue;
    slabs[g] = free_slab(g, node);
    whole = slabs[g] != kNoSlab;
  }
  if (whole && store_->read(key, block, pool_, slabs)) {
    Node& child = add_child(node, block, hash, key);
    child.slabs = std::move(slabs);
    return &child;
  }
  for (size_t g = 0; g < slabs.size(); ++g) {
    if (slabs[g] != kNoSlab) pool_.release(g, slabs[g]);
  }
  return nullptr;
}

bool PrefixTree::restore(std::span<const TokenId> tokens, size_t tokens_max, uint64_t salt,
                         uint64_t bytes_max) {
  if (store_ == nullptr) return false;
  Node* node = &root_;
  const size_t blocks = std::min(tokens.size(), tokens_max) / kPageTokens;
  uint64_t bytes = 0;
  for (size_t b = 0; b < blocks; ++b) {
    const auto block = tokens.subspan(b * kPageTokens, kPageTokens);
    const uint64_t hash = block_hash(block, salt);
    Node* child = find_child(*node, block, hash);
    if (child != nullptr) {
      touch(*child);
    } else {
      const BlockKey key = key_below(*node, block, salt);
      const uint32_t groups = store_->groups(key);
      if (groups == 0) return false;
      if (bytes >= bytes_max) return true;
      child = read_child(*node, block, hash, key, groups);
      if (child == nullptr) return false;
      for (size_t g = 0; g < child->slabs.size(); ++g) {
        if (child->slabs[g] != kNoSlab) bytes += pool_.shape().slab_bytes(g);
      }
    }
    node = child;
  }
  return false;
}

void PrefixTree::touch(Node& node) { ages_.splice(ages_.end(), ages_, node.age); }

size_t PrefixTree::attach(std::span<const TokenId> tokens, size_t tokens_max, SequenceKv& sequence,
                          uint64_t salt) {
  CHECK(sequence.length() == 0);
  std::vector<Node*> path;
  Node* node = &root_;
  const size_t blocks = std::min(tokens.size(), tokens_max) / kPageTokens;
  for (size_t b = 0; b < blocks; ++b) {
    const auto block = tokens.subspan(b * kPageTokens, kPageTokens);
    node = find_child(*node, block, block_hash(block, salt));
    if (node == nullptr) break;
    path.push_back(node);
  }
  // The next token must find, in every sliding group, all that it sees.
  const KvShape& shape = pool_.shape();
  const auto usable = [&](size_t length) {
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      const auto held = [&](size_t i) { return path[i]->slabs[g] != kNoSlab; };
      if (!holds_seen(shape.groups[g], length, held)) return false;
    }
    return true;
  };
  size_t count = path.size();
  while (count > 0 && !usable(count * kPageTokens)) --count;
  for (size_t i = 0; i < count; ++i) {
    touch(*path[i]);
    sequence.append_shared(path[i]->slabs);
  }
  sequence.drop_unseen();
  return sequence.length();
}

PrefixTree::Node* PrefixTree::find_path(std::span<const TokenId> tokens, size_t length,
                                        uint64_t salt) {
  Node* node = &root_;
  for (size_t first = 0; first < length && node != nullptr; first += kPageTokens) {
    const auto block = tokens.subspan(first, kPageTokens);
    node = find_child(*node, block, block_hash(block, salt));
  }
  return node;
}

size_t PrefixTree::extend(std::span<const TokenId> tokens, size_t tokens_max, SequenceKv& sequence,
                          uint64_t salt) {
  const size_t length = sequence.length();
  const size_t end = std::min(tokens.size(), tokens_max);
  const Node* node = find_path(tokens, length, salt);
  if (node == nullptr) return length;
  const auto rest = tokens.subspan(length, std::min(end - length, kPageTokens));
  const KvShape& shape = pool_.shape();
  // What is before the block is held: attach() has looked. A sliding group's first page may be
  // another one further on.
  const auto usable = [&](const Node& child, size_t common) {
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      const auto held = [&](size_t i) {
        return (i * kPageTokens < length ? sequence.slab(g, i) : child.slabs[g]) != kNoSlab;
      };
      if (!holds_seen(shape.groups[g], length + common, held) || child.slabs[g] == kNoSlab) {
        return false;
      }
    }
    return true;
  };
  Node* best = nullptr;
  size_t most = 0;
  for (const auto& [hash, child] : node->children) {
    const auto common =
        static_cast<size_t>(std::ranges::mismatch(rest, child->tokens).in1 - rest.begin());
    if (common <= most || hash != block_hash(child->tokens, salt)) continue;
    if (!usable(*child, common)) continue;
    best = child.get();
    most = common;
  }
  if (best == nullptr) return length;
  touch(*best);
  sequence.append_shared(best->slabs, most);
  return sequence.length();
}

size_t PrefixTree::insert(std::span<const TokenId> tokens, size_t first, const SequenceKv& sequence,
                          uint64_t salt) {
  const size_t blocks = std::min(tokens.size(), sequence.length()) / kPageTokens;
  if (blocks <= first) return first;
  const size_t groups = pool_.shape().groups.size();
  Node* node = &root_;
  for (size_t b = 0; b < blocks; ++b) {
    const auto block = tokens.subspan(b * kPageTokens, kPageTokens);
    const uint64_t hash = block_hash(block, salt);
    Node* child = find_child(*node, block, hash);
    if (child == nullptr) {
      child = &add_child(*node, block, hash, key_below(*node, block, salt));
    } else {
      touch(*child);
    }
    // A node that lost a sliding group's slab gets it again from whoever still has it.
    for (size_t g = 0; g < groups; ++g) {
      const SlabId slab = sequence.slab(g, b);
      if (child->slabs[g] != kNoSlab || slab == kNoSlab) continue;
      pool_.retain(g, slab);
      child->slabs[g] = slab;
    }
    node = child;
  }
  return blocks;
}

void PrefixTree::insert_part(std::span<const TokenId> tokens, const SequenceKv& sequence,
                             uint64_t salt) {
  const size_t whole = sequence.length() / kPageTokens * kPageTokens;
  const auto part = tokens.subspan(whole, sequence.length() - whole);
  if (part.size() < kPartTokensMin) return;
  Node* node = find_path(tokens, whole, salt);
  if (node == nullptr) return;
  for (const auto& [hash, child] : node->children) {
    if (std::ranges::mismatch(part, child->tokens).in1 != part.end()) continue;
    if (hash != block_hash(child->tokens, salt)) continue;
    touch(*child);
    return;
  }
  Node& child = add_child(*node, part, block_hash(part, salt), {});
  for (size_t g = 0; g < child.slabs.size(); ++g) {
    const SlabId slab = sequence.slab(g, whole / kPageTokens);
    if (slab == kNoSlab) continue;
    pool_.retain(g, slab);
    child.slabs[g] = slab;
  }
}

size_t PrefixTree::slabs(size_t group) const {
  size_t count = 0;
  for (const Node* node : ages_) count += node->slabs[group] == kNoSlab ? 0 : 1;
  return count;
}

void PrefixTree::remove(Node& leaf, bool wait) {
  CHECK(leaf.children.empty());
  const bool whole = leaf.tokens.size() == kPageTokens;
  if (store_ != nullptr && whole) store_->put(leaf.key, leaf.tokens, pool_, leaf.slabs, wait);
  for (size_t g = 0; g < leaf.slabs.size(); ++g) {
    if (leaf.slabs[g] != kNoSlab) pool_.release(g, leaf.slabs[g]);
  }
  ages_.erase(leaf.age);
  --nodes_;
  auto& siblings = leaf.parent->children;
  const auto [first, last] = siblings.equal_range(leaf.hash);
  for (auto it = first; it != last; ++it) {
    if (it->second.get() == &leaf) {
      siblings.erase(it);
      return;
    }
  }
}

// The least recently used leaf whose slab of `group` nobody else holds; else any leaf.
PrefixTree::Node* PrefixTree::oldest_leaf(size_t group) {
  Node* any = nullptr;
  for (Node* node : ages_) {
    if (!node->children.empty()) continue;
    const SlabId slab = node->slabs[group];
    if (slab != kNoSlab && pool_.references(group, slab) == 1) return node;
    if (any == nullptr) any = node;
  }
  return any;
}

// Gives back the oldest slab of a sliding group that only the tree holds; the node stays.
bool PrefixTree::strip_oldest(size_t group) {
  // Without its first slabs no prefix of a group can be taken up again.
  const auto is_first = [&](const Node* node) {
    for (size_t depth = pool_.shape().groups[group].first_slabs; depth > 0; --depth) {
      if (node->parent == &root_) return true;
      node = node->parent;
    }
    return false;
  };
  for (Node* node : ages_) {
    if (is_first(node)) continue;
    const SlabId slab = node->slabs[group];
    if (slab == kNoSlab || pool_.references(group, slab) > 1) continue;
    pool_.release(group, slab);
    node->slabs[group] = kNoSlab;
    return true;
  }
  return false;
}

void PrefixTree::make_free(size_t group, size_t count) {
  const bool slides = pool_.shape().groups[group].window > 0;
  while (pool_.free_slabs(group) < count) {
    if (slides && strip_oldest(group)) continue;
    Node* leaf = oldest_leaf(group);
    if (leaf == nullptr) return;
    remove(*leaf);
  }
}

}  // namespace kvikk
