#include "kv/sequence_kv.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/coder.h"

namespace kvikk {

SequenceKv::SequenceKv(PagePool& pool) : pool_(&pool), groups_(pool.shape().groups.size()) {}

SequenceKv::~SequenceKv() { release_all(); }

SequenceKv::SequenceKv(SequenceKv&& other) noexcept
    : pool_(other.pool_),
      groups_(std::move(other.groups_)),
      length_(std::exchange(other.length_, 0)),
      evicted_at_(std::exchange(other.evicted_at_, 0)),
      first_kept_(std::move(other.first_kept_)) {
  other.groups_.clear();
}

SequenceKv& SequenceKv::operator=(SequenceKv&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(groups_, other.groups_);
  std::swap(length_, other.length_);
  std::swap(evicted_at_, other.evicted_at_);
  std::swap(first_kept_, other.first_kept_);
  return *this;
}

void SequenceKv::release_all() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (SlabId slab : groups_[g]) {
      if (slab != kNoSlab) pool_->release(g, slab);
    }
  }
  groups_.clear();
}

size_t SequenceKv::slabs_to_reserve(size_t group, size_t tokens) const {
  const std::vector<SlabId>& slabs = groups_[group];
  const size_t needed = (length_ + tokens + kPageTokens - 1) / kPageTokens;
  const size_t first_written = length_ / kPageTokens;
  const bool shared =
      first_written < slabs.size() && pool_->references(group, slabs[first_written]) > 1;
  return needed - std::min(needed, slabs.size()) + (shared ? 1 : 0);
}

Status SequenceKv::own(size_t group, size_t index) {
  SlabId& slab = groups_[group][index];
  if (pool_->references(group, slab) == 1) return ok_status();
  const SlabId copy = pool_->copy(group, slab);
  if (copy == kNoSlab) return exhausted("the key-value cache is full");
  pool_->release(group, slab);
  slab = copy;
  return ok_status();
}

Status SequenceKv::reserve(size_t tokens) {
  const size_t needed = (length_ + tokens + kPageTokens - 1) / kPageTokens;
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<SlabId>& slabs = groups_[g];
    const size_t first_written = length_ / kPageTokens;
    if (first_written < slabs.size()) TRY(own(g, first_written));
    while (slabs.size() < needed) {
      const SlabId slab = pool_->allocate(g);
      if (slab == kNoSlab) return exhausted("the key-value cache is full");
      slabs.push_back(slab);
    }
  }
  return ok_status();
}

void SequenceKv::advance(size_t tokens) {
  length_ += tokens;
  for (const auto& slabs : groups_) CHECK(slabs.size() * kPageTokens >= length_);
}

bool SequenceKv::can_truncate(size_t length) const {
  if (length > length_) return false;
  if (evicted()) return length >= evicted_at_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto held = [&](size_t i) { return groups_[g][i] != kNoSlab; };
    if (!holds_seen(pool_->shape().groups[g], length, held)) return false;
  }
  return true;
}

void SequenceKv::truncate(size_t length) {
  CHECK(can_truncate(length));
  length_ = length;
  const size_t kept = (length + kPageTokens - 1) / kPageTokens;
  for (size_t g = 0; g < groups_.size(); ++g) {
    while (groups_[g].size() > kept) {
      if (groups_[g].back() != kNoSlab) pool_->release(g, groups_[g].back());
      groups_[g].pop_back();
    }
  }
}

void SequenceKv::move_kept(const Kernels& kernels, size_t group, size_t layer_in_group,
                           size_t kv_head, const std::vector<uint32_t>& kept) {
  const KvShape& shape = pool_->shape();
  const size_t key_size = shape.head_dim;
  const size_t value_size = shape.value_size();
  const size_t values_at = kv_part_bytes(shape.format, shape.key_width());
  std::vector<float> moved(kept.size() * (key_size + value_size));
  for (size_t i = 0; i < kept.size(); ++i) {
    const uint8_t* page =
        pool_->page(group, groups_[group][kept[i] / kPageTokens], layer_in_group, kv_head);
    float* key = moved.data() + i * (key_size + value_size);
    const size_t slot = kept[i] % kPageTokens;
    load_exact_key(page, shape.format, slot, key_size, shape.key_width(), key);
    load_exact_value(page + values_at, shape.format, slot, value_size, shape.value_width(),
                     key + key_size);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const size_t place = length_ - kept.size() + i;
    const float* key = moved.data() + i * (key_size + value_size);
    pool_->store(
        kernels,
        {group, groups_[group][place / kPageTokens], layer_in_group, kv_head, place % kPageTokens},
        key, key + key_size);
  }
}

Status SequenceKv::evict(const Kernels& kernels, const KeptTokens& kept,
                         const std::function<void(size_t group)>& make_free) {
  const KvShape& shape = pool_->shape();
  CHECK(!evicted() && shape.coder == nullptr && !shape.value_in_key);
  CHECK(kept.groups.size() == groups_.size());
  const auto most = [](const std::vector<std::vector<uint32_t>>& heads) {
    size_t count = 0;
    for (const auto& positions : heads) count = std::max(count, positions.size());
    return count;
  };
  const auto first_slab = [&](size_t g) { return (length_ - most(kept.groups[g])) / kPageTokens; };
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (kept.groups[g].empty()) continue;
    CHECK(shape.groups[g].window == 0);
    for (size_t i = first_slab(g); i < groups_[g].size(); ++i) {
      make_free(g);
      TRY(own(g, i));
    }
  }
  first_kept_.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    first_kept_[g].assign(shape.groups[g].layers.size(), 0);
    if (kept.groups[g].empty()) continue;
    for (size_t i = 0; i < kept.groups[g].size(); ++i) {
      const std::vector<uint32_t>& positions = kept.groups[g][i];
      move_kept(kernels, g, i / shape.kv_heads, i % shape.kv_heads, positions);
      first_kept_[g][i / shape.kv_heads] = length_ - positions.size();
    }
    for (size_t i = 0; i < first_slab(g); ++i) {
      pool_->release(g, groups_[g][i]);
      groups_[g][i] = kNoSlab;
    }
  }
  evicted_at_ = length_;
  return ok_status();
}

void SequenceKv::drop_unseen() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const KvGroup& group = pool_->shape().groups[g];
    if (group.window == 0) continue;
    const size_t oldest = first_seen(length_, group.window + group.take_back);
    const size_t unseen = std::min(oldest / kPageTokens, groups_[g].size());
    // Slabs are dropped oldest first, so the first one still held ends the walk.
    const size_t kept = pool_->shape().groups[g].first_slabs;
    for (size_t i = unseen; i > kept && groups_[g][i - 1] != kNoSlab; --i) {
      pool_->release(g, groups_[g][i - 1]);
      groups_[g][i - 1] = kNoSlab;
    }
  }
}

SequenceKv SequenceKv::fork() const {
  SequenceKv copy(*pool_);
  copy.length_ = length_;
  copy.groups_ = groups_;
  copy.evicted_at_ = evicted_at_;
  copy.first_kept_ = first_kept_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (SlabId slab : groups_[g]) {
      if (slab != kNoSlab) pool_->retain(g, slab);
    }
  }
  return copy;
}

void SequenceKv::append_shared(const std::vector<SlabId>& slabs, size_t tokens) {
  CHECK(slabs.size() == groups_.size());
  CHECK(length_ % kPageTokens == 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    CHECK(groups_[g].size() * kPageTokens == length_);
    if (slabs[g] != kNoSlab) pool_->retain(g, slabs[g]);
    groups_[g].push_back(slabs[g]);
  }
  length_ += tokens;
}

}  // namespace kvikk
