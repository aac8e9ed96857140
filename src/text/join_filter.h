#pragma once
// Which characters may stand side by side within a token: a Bloom filter, so it may say yes where
// no token has them. No merge crosses a boundary that it rules out, so text can be cut there, which
// keeps pieces short and the cache of pieces useful.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/string_table.h"
#include "text/utf8.h"

namespace kvikk {

class JoinFilter {
 public:
  explicit JoinFilter(size_t tokens) {
    size_t words = 64;
    while (words * 64 < tokens * 16) words *= 2;
    bits_.resize(words);
  }

  // Every two neighbours in `token` (well-formed UTF-8, not empty).
  void add(std::string_view token) {
    const char* p = token.data();
    const char* const end = p + token.size();
    const DecodedChar first = decode_valid_utf8(p);
    char32_t left = first.code_point;
    for (p += first.bytes; p < end;) {
      const DecodedChar right = decode_valid_utf8(p);
      const size_t bit = bit_of(left, right.code_point);
      bits_[bit / 64] |= uint64_t{1} << (bit % 64);
      left = right.code_point;
      p += right.bytes;
    }
  }

  bool may_join(char32_t left, char32_t right) const {
    const size_t bit = bit_of(left, right);
    return bits_[bit / 64] >> (bit % 64) & 1;
  }

 private:
  size_t bit_of(char32_t left, char32_t right) const {
    const uint64_t pair = static_cast<uint64_t>(left) << 32 | right;
    return mix_hash(pair * 0x9E3779B97F4A7C15u) & (bits_.size() * 64 - 1);
  }

  std::vector<uint64_t> bits_;  // a power of two
};

}  // namespace kvikk
