#pragma once
// Codes of 16 vectors x 16 dims from their planes (search.h) to levels + 128, for AVX-512 with
// VBMI: at most one shift, one selection and one permutation for 64 levels. The permutation reads
// six bits of an index; the table repeats, so that bits that do not belong to the code do not
// matter and need not be cleared.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/search.h"

namespace kvikk::avx512 {

namespace {

// Where a group's planes begin in one block.
struct SearchPlanes {
  const uint8_t* top;
  const uint8_t* rest;
  size_t dims;
};

inline __m512i load_line(const uint8_t* from) { return _mm512_loadu_si512(from); }

// Bits of x where the mask has them, of y elsewhere.
inline __m512i choose(uint8_t mask, __m512i x, __m512i y) {
  return _mm512_ternarylogic_epi32(x, _mm512_set1_epi8(static_cast<char>(mask)), y, 0xe2);
}

template <int kBy>
inline __m512i up(__m512i x) {
  return _mm512_slli_epi16(x, kBy);
}
template <int kBy>
inline __m512i down(__m512i x) {
  return _mm512_srli_epi16(x, kBy);
}

// Nibbles of four bits out of two planes of two: dims j = 0 and 2 in `even`, 1 and 3 in `odd`.
struct Nibbles {
  __m512i even, odd;
};
inline Nibbles join(__m512i high, __m512i low) {
  return {choose(0x33, low, up<2>(high)), choose(0x33, down<2>(low), high)};
}

// The table for codes that begin at bit 0, and, for codes of one or two bits, tables for those that
// begin at bit s: at most bits 0 to 5 are read, so most of these codes need no shift at all.
template <int kBits>
struct LevelTables {
  static constexpr int kCount = kBits <= 2 ? 6 : 1;
  __m512i at[kCount];

  explicit LevelTables(const uint8_t* table) {
    at[0] = _mm512_load_si512(table);
    alignas(64) uint8_t numbers[kSearchTableSize];
    for (size_t i = 0; i < kSearchTableSize; ++i) numbers[i] = static_cast<uint8_t>(i);
    const __m512i index = _mm512_load_si512(numbers);
    // Bits that come in from the byte beside are not looked at: the table repeats.
    for (int s = 1; s < kCount; ++s) {
      const __m512i moved = _mm512_srl_epi16(index, _mm_cvtsi32_si128(s));
      at[s] = _mm512_permutexvar_epi8(moved, at[0]);
    }
  }
};

// 32 dims are a step, a half of it 16; levels[j] holds 16 vectors x dims 4 j .. 4 j + 3 of them.
template <int kBits, int kHalf>
inline void decode_half(const SearchPlanes& p, size_t step, const LevelTables<kBits>& tables,
                        __m512i (&levels)[4]) {
  constexpr int kBit = 2 * kHalf;
  const size_t two = step * 128 + kHalf * 64;
  const size_t one = step * 64;
  const auto look_up = [&](__m512i index) { return _mm512_permutexvar_epi8(index, tables.at[0]); };
  if constexpr (kBits == 1) {
    const __m512i x = load_line(p.top + one);
    const auto look_up_at = [&](int bit) { return _mm512_permutexvar_epi8(x, tables.at[bit]); };
    levels[0] = look_up_at(kBit);
    levels[1] = look_up_at(kBit + 1);
    if constexpr (kHalf == 0) {
      levels[2] = look_up_at(4);
      levels[3] = look_up_at(5);
    } else {
      const __m512i last = down<2>(x);
      levels[2] = _mm512_permutexvar_epi8(last, tables.at[4]);
      levels[3] = _mm512_permutexvar_epi8(last, tables.at[5]);
    }
  } else if constexpr (kBits == 2) {
    const __m512i top = load_line(p.top + two);
    levels[0] = look_up(top);
    levels[1] = _mm512_permutexvar_epi8(top, tables.at[2]);
    levels[2] = _mm512_permutexvar_epi8(top, tables.at[4]);
    levels[3] = _mm512_permutexvar_epi8(down<2>(top), tables.at[4]);
  } else if constexpr (kBits == 3) {
    const __m512i top = load_line(p.top + two);
    const __m512i last = load_line(p.rest + one);
    const __m512i even = choose(0x11, down<kBit>(last), up<1>(top));
    const __m512i odd = choose(0x11, down<kBit + 1>(last), down<1>(top));
    levels[0] = look_up(even);
    levels[1] = look_up(odd);
    levels[2] = look_up(down<4>(even));
    levels[3] = look_up(down<4>(odd));
  } else {
    const Nibbles high = join(load_line(p.top + two), load_line(p.rest + two));
    const uint8_t* third = p.rest + p.dims * 4;
    if constexpr (kBits == 4) {
      levels[0] = look_up(high.even);
      levels[1] = look_up(high.odd);
      levels[2] = look_up(down<4>(high.even));
      levels[3] = look_up(down<4>(high.odd));
    } else if constexpr (kBits == 5) {
      const __m512i last = load_line(third + one);
      levels[0] = look_up(choose(0x01, down<kBit>(last), up<1>(high.even)));
      levels[1] = look_up(choose(0x01, down<kBit + 1>(last), up<1>(high.odd)));
      levels[2] = look_up(choose(0x01, down<kBit + 4>(last), down<3>(high.even)));
      levels[3] = look_up(choose(0x01, down<kBit + 5>(last), down<3>(high.odd)));
    } else if constexpr (kBits == 6) {
      const __m512i last = load_line(third + two);
      levels[0] = look_up(choose(0x03, last, up<2>(high.even)));
      levels[1] = look_up(choose(0x03, down<2>(last), up<2>(high.odd)));
      levels[2] = look_up(choose(0x03, down<4>(last), down<2>(high.even)));
      levels[3] = look_up(choose(0x03, down<6>(last), down<2>(high.odd)));
    } else {
      static_assert(kBits == 8);
      const Nibbles low = join(load_line(third + two), load_line(third + p.dims * 4 + two));
      levels[0] = choose(0x0f, low.even, up<4>(high.even));
      levels[1] = choose(0x0f, low.odd, up<4>(high.odd));
      levels[2] = choose(0x0f, down<4>(low.even), high.even);
      levels[3] = choose(0x0f, down<4>(low.odd), high.odd);
    }
  }
}

}  // namespace

}  // namespace kvikk::avx512
