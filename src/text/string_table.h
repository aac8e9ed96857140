#pragma once
// Flat hash table from strings to token ids, for vocabularies. The strings live elsewhere and must
// outlive the table. Several times faster to build than std::unordered_map, which matters because a
// model answers only after its vocabulary is loaded.

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kvikk/token.h"

namespace kvikk {

inline uint64_t mix_hash(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  return x;
}

inline uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    hash = mix_hash(hash ^ word) * 0x9E3779B97F4A7C15u;
  }
  uint64_t word = 0;
  std::memcpy(&word, p, left);
  return mix_hash(hash ^ word);
}

class StringTable {
 public:
  // A crafted file could hold strings that all collide. Real vocabularies stay far below.
  static constexpr size_t kProbesMax = 1000;

  explicit StringTable(size_t strings_max) {
    size_t slots = 16;
    while (slots < strings_max * 2) slots *= 2;
    slots_.resize(slots);
  }

  // The id that `string` already has, or `id` after adding it; kDamaged after kProbesMax
  // collisions.
  Result<TokenId> add(std::string_view string, TokenId id) {
    const uint64_t hash = hash_bytes(string);
    for (size_t probe = 0; probe < kProbesMax; ++probe) {
      Slot& slot = slots_[(hash + probe) & (slots_.size() - 1)];
      if (slot.id < 0) {
        slot = {string.data(), static_cast<uint32_t>(string.size()), id};
        return id;
      }
      if (slot.view() == string) return slot.id;
    }
    return damaged("the vocabulary's strings collide in the hash table");
  }

  // The id of `string`, or -1.
  TokenId find(std::string_view string) const {
    for (size_t i = hash_bytes(string);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.id < 0) return -1;
      if (slot.view() == string) return slot.id;
    }
  }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t size = 0;
    TokenId id = -1;
    std::string_view view() const { return {data, size}; }
  };
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace kvikk
