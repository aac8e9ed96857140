#include "kv/sequence_kv.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvikk {

SequenceKv::SequenceKv(PagePool& pool) : pool_(&pool), groups_(pool.shape().groups.size()) {}

SequenceKv::~SequenceKv() { release_all(); }

SequenceKv::SequenceKv(SequenceKv&& other) noexcept
    : pool_(other.pool_),
      groups_(std::move(other.groups_)),
      length_(std::exchange(other.length_, 0)) {
  other.groups_.clear();
}

SequenceKv& SequenceKv::operator=(SequenceKv&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(groups_, other.groups_);
  std::swap(length_, other.length_);
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

Status SequenceKv::reserve(size_t tokens) {
  const size_t needed = (length_ + tokens + kPageTokens - 1) / kPageTokens;
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<SlabId>& slabs = groups_[g];
    const size_t first_written = length_ / kPageTokens;
    if (first_written < slabs.size() && pool_->references(g, slabs[first_written]) > 1) {
      const SlabId own = pool_->copy(g, slabs[first_written]);
      if (own == kNoSlab) return exhausted("the key-value cache is full");
      pool_->release(g, slabs[first_written]);
      slabs[first_written] = own;
    }
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
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (SlabId slab : groups_[g]) {
      if (slab != kNoSlab) pool_->retain(g, slab);
    }
  }
  return copy;
}

void SequenceKv::append_shared(const std::vector<SlabId>& slabs) {
  CHECK(slabs.size() == groups_.size());
  CHECK(length_ % kPageTokens == 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    CHECK(groups_[g].size() * kPageTokens == length_);
    if (slabs[g] != kNoSlab) pool_->retain(g, slabs[g]);
    groups_[g].push_back(slabs[g]);
  }
  length_ += kPageTokens;
}

}  // namespace kvikk
