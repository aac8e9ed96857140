#include "kv/page_pool.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "kv/coder.h"

namespace kvikk {

size_t KvShape::page_bytes(size_t group) const {
  return groups[group].coded ? coder->page_bytes() : page_bytes();
}

size_t KvShape::bytes_per_token() const {
  size_t bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].coded_by == kNoGroup) bytes += slab_bytes(g) / kPageTokens;
  }
  return bytes;
}

size_t KvShape::sequence_slabs(size_t group, size_t tokens, size_t step_tokens) const {
  const size_t all = (tokens + kPageTokens - 1) / kPageTokens;
  const size_t window = groups[group].window;
  if (window == 0) return all;
  // Before a step the oldest token that its first row sees is window - 1 behind; one page more on
  // either side where page borders fall badly.
  return std::min(all, groups[group].first_slabs +
                           (window + groups[group].take_back + step_tokens) / kPageTokens + 2);
}

size_t KvShape::sequence_bytes(size_t tokens) const {
  size_t bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) bytes += sequence_slabs(g, tokens, 1) * slab_bytes(g);
  return bytes;
}

Result<PagePool> PagePool::create(KvShape shape, const std::vector<size_t>& slabs) {
  CHECK(slabs.size() == shape.groups.size());
  CHECK(shape.head_dim > 0 && shape.head_dim <= kKvDimMax);
  CHECK(shape.value_size() <= (shape.value_in_key ? shape.head_dim : kKvDimMax));
  if (shape.coder != nullptr) CHECK(!shape.value_in_key && shape.value_size() == shape.head_dim);
  PagePool pool;
  pool.shape_ = std::move(shape);
  for (size_t g = 0; g < slabs.size(); ++g) {
    Group group;
    TRY_ASSIGN(group.memory, Buffer::allocate(slabs[g] * pool.shape_.slab_bytes(g)));
    group.references.assign(slabs[g], 0);
    group.free.reserve(slabs[g]);
    // The lowest index is taken first, so that memory once touched is used again.
    for (size_t i = slabs[g]; i > 0; --i) group.free.push_back(static_cast<SlabId>(i - 1));
    pool.groups_.push_back(std::move(group));
  }
  return pool;
}

SlabId PagePool::allocate(size_t group) {
  Group& g = groups_[group];
  if (g.free.empty()) return kNoSlab;
  const SlabId id = g.free.back();
  g.free.pop_back();
  g.references[static_cast<size_t>(id)] = 1;
  // Kernels read whole pages and give unseen tokens the weight 0, which only hides finite values.
  std::memset(slab(group, id), 0, shape_.slab_bytes(group));
  return id;
}

SlabId PagePool::copy(size_t group, SlabId source) {
  Group& g = groups_[group];
  if (g.free.empty()) return kNoSlab;
  const SlabId id = g.free.back();
  g.free.pop_back();
  g.references[static_cast<size_t>(id)] = 1;
  std::memcpy(slab(group, id), slab(group, source), shape_.slab_bytes(group));
  return id;
}

void PagePool::store(const Kernels& kernels, const KvPlace& place, const float* key,
                     const float* value) {
  const auto format = static_cast<size_t>(shape_.format);
  uint8_t* keys = page(place.group, place.slab, place.layer_in_group, place.kv_head);
  float padded[(kKvDimMax + 15) / 16 * 16];
  const auto widen = [&](const float* x, size_t size, size_t width) -> const float* {
    if (size == width) return x;
    std::memcpy(padded, x, size * sizeof(float));
    std::fill(padded + size, padded + width, 0.0f);
    return padded;
  };
  const size_t key_width = shape_.key_width();
  kernels.store_key[format](keys, place.slot, widen(key, shape_.head_dim, key_width), key_width);
  CHECK((value == nullptr) == shape_.value_in_key);
  if (value == nullptr) return;
  const size_t value_width = shape_.value_width();
  kernels.store_value[format](keys + kv_part_bytes(shape_.format, key_width), place.slot,
                              widen(value, shape_.value_size(), value_width), value_width);
}

void PagePool::retain(size_t group, SlabId slab) {
  uint32_t& count = groups_[group].references[static_cast<size_t>(slab)];
  CHECK(count > 0);
  ++count;
}

void PagePool::release(size_t group, SlabId slab) {
  Group& g = groups_[group];
  uint32_t& count = g.references[static_cast<size_t>(slab)];
  CHECK(count > 0);
  if (--count == 0) g.free.push_back(slab);
}

}  // namespace kvikk
