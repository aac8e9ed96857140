#pragma once
// Flat hash table from strings to token ids, for vocabularies. It holds only ids and a part of each
// hash; the strings live elsewhere and the caller says where: text_of(id) gives the string of an
// id. Several times faster to build than std::unordered_map, which matters because a model answers
// only after its vocabulary is loaded.

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
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = bytes.size() * kMultiplier;
  const char* p = bytes.data();
  size_t left = bytes.size();
  uint64_t word;
  for (; left >= sizeof(word); p += sizeof(word), left -= sizeof(word)) {
    std::memcpy(&word, p, sizeof(word));
    hash = mix_hash(hash ^ word) * kMultiplier;
  }
  word = 0;
  if (left > 0) std::memcpy(&word, p, left);
  return mix_hash(mix_hash(hash ^ word) * kMultiplier);
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

  // The id whose string equals that of `id`: an earlier one, or `id` itself, which is then added.
  // kDamaged after kProbesMax collisions.
  template <class TextOf>
  Result<TokenId> add(TokenId id, TextOf&& text_of) {
    const std::string_view string = text_of(id);
    const uint64_t hash = hash_bytes(string);
    for (size_t probe = 0; probe < kProbesMax; ++probe) {
      Slot& slot = slots_[(hash + probe) & (slots_.size() - 1)];
      if (slot.id < 0) {
        slot = {tag(hash), id};
        return id;
      }
      if (slot.tag == tag(hash) && text_of(slot.id) == string) return slot.id;
    }
    return damaged("the vocabulary's strings collide in the hash table");
  }

  // The id of `string`, or -1.
  template <class TextOf>
  TokenId find(std::string_view string, TextOf&& text_of) const {
    const uint64_t hash = hash_bytes(string);
    for (size_t i = hash;; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.id < 0) return -1;
      if (slot.tag == tag(hash) && text_of(slot.id) == string) return slot.id;
    }
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    TokenId id = -1;
  };
  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace kvikk
