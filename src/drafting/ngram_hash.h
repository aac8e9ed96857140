#pragma once
// Hashes of a few tokens in a row, and how far a match of so many is trusted.

#include <cstddef>
#include <cstdint>

#include "kvikk/token.h"

namespace kvikk {

// The same tokens with another salt have another hash.
inline uint64_t ngram_hash(const TokenId* tokens, size_t count, uint64_t salt = 0) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t hash = salt * kOdd + count;
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * kOdd;
    hash ^= hash >> 29;
  }
  return hash;
}

// The more tokens agree, the surer is what follows.
inline float trust_in_match(size_t tokens) { return 1.0f - 1.0f / static_cast<float>(tokens + 1); }

}  // namespace kvikk
