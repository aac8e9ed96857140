#pragma once
// The memory of the key-value cache. Its unit is a slab: the pages of 64 tokens for all layers and
// KV heads of one group of layers, so that one reference count and one free list serve them all.
// Layers with a sliding window form a group of their own, whose old slabs go back while the others
// stay.
//
// Slabs are shared by reference between sequences; whoever writes to a shared one copies it first.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "kernels/kernels.h"

namespace kvikk {

// A slab's index in its group. kNoSlab: dropped, or never there.
using SlabId = int32_t;
inline constexpr SlabId kNoSlab = -1;

class KvCoder;  // coder.h

inline constexpr size_t kNoGroup = static_cast<size_t>(-1);

// Layers whose old keys and values are kept as codes have two groups: this one holds their recent
// exact pages, and the first ones; the group `coded_by` holds the codes of all pages.
struct KvGroup {
  std::vector<size_t> layers;  // model layers in this group
  size_t window = 0;           // tokens that are seen, the newest included; 0: all
  size_t take_back = 0;        // tokens behind the window that are kept, so that as many can be
                               // taken back
  size_t first_slabs = 0;      // kept besides the window
  size_t coded_by = kNoGroup;
  bool coded = false;  // holds codes
};

// The first position that a token at `position` sees through a window of `window` tokens, itself
// included; 0: all.
inline constexpr size_t first_seen(size_t position, size_t window) {
  return window > 0 && position + 1 > window ? position + 1 - window : 0;
}

// Whether held(i) of every slab i of a group that a token at `length` reads, and of those that are
// kept besides the window.
template <class Held>
bool holds_seen(const KvGroup& group, size_t length, Held&& held) {
  for (size_t i = first_seen(length, group.window) / kPageTokens; i * kPageTokens < length; ++i) {
    if (!held(i)) return false;
  }
  for (size_t i = 0; i < group.first_slabs && i * kPageTokens < length; ++i) {
    if (!held(i)) return false;
  }
  return true;
}

// The largest key or value of a KV head.
inline constexpr size_t kKvDimMax = 576;

struct KvShape {
  KvFormat format = KvFormat::kBF16;
  size_t kv_heads = 0;
  size_t head_dim = 0;   // of keys, and of values where value_dim is 0; at most kKvDimMax
  size_t value_dim = 0;  // of values where it differs
  // Values are the first value_dim dims of the keys and take no room (a latent that all heads
  // share).
  bool value_in_key = false;
  std::vector<KvGroup> groups;
  std::shared_ptr<const KvCoder> coder;  // of the coded groups; null: none

  // In pages dims are padded with zeros to a multiple of 16.
  size_t key_width() const { return (head_dim + 15) / 16 * 16; }
  size_t value_size() const { return value_dim > 0 ? value_dim : head_dim; }
  size_t value_width() const { return (value_size() + 15) / 16 * 16; }
  size_t page_bytes() const {
    return kv_part_bytes(format, key_width() + (value_in_key ? 0 : value_width()));
  }
  size_t page_bytes(size_t group) const;
  size_t slab_bytes(size_t group) const {
    return groups[group].layers.size() * kv_heads * page_bytes(group);
  }
  // Tokens that a layer of an exact group sees, itself included; 0: all.
  size_t seen(size_t group) const {
    const size_t coded = groups[group].coded_by;
    return groups[coded == kNoGroup ? group : coded].window;
  }
  // Bytes that one token takes in all layers while it is visible to all of them, past the few
  // pages that a coded cache keeps exact.
  size_t bytes_per_token() const;
  // Bytes that a sequence of `tokens` holds once dropped slabs are given back.
  size_t sequence_bytes(size_t tokens) const;
  // Slabs of a group that a sequence of `tokens` can hold at a time, while up to `step_tokens` are
  // appended at once.
  size_t sequence_slabs(size_t group, size_t tokens, size_t step_tokens) const;
};

// One token of one KV head in one layer.
struct KvPlace {
  size_t group = 0;
  SlabId slab = kNoSlab;
  size_t layer_in_group = 0;
  size_t kv_head = 0;
  size_t slot = 0;  // position % 64
};

class PagePool {
 public:
  // slabs[g]: capacity of group g. Memory is taken from the system when a slab is first used.
  static Result<PagePool> create(KvShape shape, const std::vector<size_t>& slabs);

  const KvShape& shape() const { return shape_; }
  size_t capacity(size_t group) const { return groups_[group].references.size(); }
  size_t free_slabs(size_t group) const { return groups_[group].free.size(); }

  // A zeroed slab with one reference, or kNoSlab when the group is full.
  SlabId allocate(size_t group);
  // A slab with one reference that holds a copy of `source`, or kNoSlab.
  SlabId copy(size_t group, SlabId source);
  void retain(size_t group, SlabId slab);
  void release(size_t group, SlabId slab);
  uint32_t references(size_t group, SlabId slab) const {
    return groups_[group].references[static_cast<size_t>(slab)];
  }

  uint8_t* slab(size_t group, SlabId slab) {
    return groups_[group].memory.data() + static_cast<size_t>(slab) * shape_.slab_bytes(group);
  }
  // The page of the i-th layer of the group.
  uint8_t* page(size_t group, SlabId slab_id, size_t layer_in_group, size_t kv_head) {
    return slab(group, slab_id) +
           (layer_in_group * shape_.kv_heads + kv_head) * shape_.page_bytes(group);
  }
  // Writes a key [head_dim] and a value [value_size()]; value is null where it is in the key.
  void store(const Kernels& kernels, const KvPlace& place, const float* key, const float* value);

 private:
  struct Group {
    Buffer memory;
    std::vector<uint32_t> references;  // [capacity]
    std::vector<SlabId> free;
  };
  KvShape shape_;
  std::vector<Group> groups_;
};

}  // namespace kvikk
