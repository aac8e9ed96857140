#pragma once
// From an id to where its vector lies: open addressing with 8 bytes a slot; the ids themselves are
// read where they lie.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvikk {

struct RowPlace {
  uint32_t chunk = 0;
  uint32_t row = 0;
};

class IdMap {
 public:
  // id_at(place) gives the id of a place that was put in. Each returns whether the id was there.
  template <class IdAt>
  bool find(int64_t id, const IdAt& id_at, RowPlace& out) const {
    if (slots_.empty()) return false;
    for (size_t i = home(id);; i = (i + 1) & mask()) {
      if (slots_[i] == kEmpty) return false;
      if (id_at(place(slots_[i])) == id) {
        out = place(slots_[i]);
        return true;
      }
    }
  }
  // The id must not be in the map, or be at its old place (which is replaced).
  template <class IdAt>
  void put(int64_t id, RowPlace at, const IdAt& id_at) {
    if ((count_ + 1) * 4 > slots_.size() * 3) grow(id_at);
    for (size_t i = home(id);; i = (i + 1) & mask()) {
      if (slots_[i] != kEmpty && id_at(place(slots_[i])) != id) continue;
      count_ += slots_[i] == kEmpty ? 1 : 0;
      slots_[i] = packed(at);
      return;
    }
  }
  template <class IdAt>
  bool erase(int64_t id, const IdAt& id_at) {
    if (slots_.empty()) return false;
    size_t i = home(id);
    for (; slots_[i] == kEmpty || id_at(place(slots_[i])) != id; i = (i + 1) & mask()) {
      if (slots_[i] == kEmpty) return false;
    }
    --count_;
    // Those behind that would no longer be found move up.
    for (size_t next = (i + 1) & mask(); slots_[next] != kEmpty; next = (next + 1) & mask()) {
      const size_t wanted = home(id_at(place(slots_[next])));
      if (((next - wanted) & mask()) < ((next - i) & mask())) continue;
      slots_[i] = slots_[next];
      i = next;
    }
    slots_[i] = kEmpty;
    return true;
  }
  size_t size() const { return count_; }
  void clear() {
    slots_.clear();
    count_ = 0;
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static constexpr size_t kSlotsMin = 64;

  static uint64_t packed(RowPlace at) { return static_cast<uint64_t>(at.chunk) << 32 | at.row; }
  static RowPlace place(uint64_t slot) {
    return {static_cast<uint32_t>(slot >> 32), static_cast<uint32_t>(slot)};
  }
  size_t mask() const { return slots_.size() - 1; }
  size_t home(int64_t id) const {
    uint64_t x = static_cast<uint64_t>(id);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return static_cast<size_t>(x ^ x >> 31) & mask();
  }
  template <class IdAt>
  void grow(const IdAt& id_at) {
    std::vector<uint64_t> old(slots_.empty() ? kSlotsMin : slots_.size() * 2, kEmpty);
    old.swap(slots_);
    for (const uint64_t slot : old) {
      if (slot == kEmpty) continue;
      size_t i = home(id_at(place(slot)));
      while (slots_[i] != kEmpty) i = (i + 1) & mask();
      slots_[i] = slot;
    }
  }

  std::vector<uint64_t> slots_;  // a power of two, or none
  size_t count_ = 0;
};

}  // namespace kvikk
