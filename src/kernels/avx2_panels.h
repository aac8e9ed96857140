#pragma once
// The quantized panel formats as AVX2 code. A register holds one quad of half a panel (8 rows x 4
// k), as unsigned bytes; `half` is 0 or 1. All in an anonymous namespace: nothing here may be
// shared between object files that are compiled for different processors.
//
// A format gives, for group i of the unit at `unit`:
//   pair     the codes of quads 2 j and 2 j + 1
//   scale    of the dot `part` (kParts = 2 when 16 k share a scale, else 1)
//   minimum  what is multiplied with the weighted sum, when kHasMin
// and kZero, the code that means zero, and kBits.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace kvikk::avx2 {

namespace {

constexpr size_t kQuads = 8;  // of a group of 32
constexpr size_t kLine = 64;  // bytes of an unpacked quad: [16 rows][4 k]
constexpr size_t kHalfLine = 32;
constexpr size_t kHalfLanes = 8;
constexpr size_t kLanes = 16;   // rows of a panel
constexpr size_t kGroupK = 32;  // k of a group

inline __m256i load_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __m256 load_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

inline __m256 load_i8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

inline void load_nibbles(const uint8_t* lines, int half, size_t j, __m256i& even, __m256i& odd) {
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i line = load_bytes(lines + j * kLine + static_cast<size_t>(half) * kHalfLine);
  even = _mm256_and_si256(line, low);
  odd = _mm256_and_si256(_mm256_srli_epi16(line, 4), low);
}

// 16 in each byte whose bit is set; the 32 bits of half a quad are at p.
inline __m256i fifth_bits(const uint8_t* p) {
  int bits = 0;
  __builtin_memcpy(&bits, p, 4);
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

inline void add_fifth_bits(const uint8_t* bits, int half, size_t j, __m256i& even, __m256i& odd) {
  const uint8_t* at = bits + j * 16 + static_cast<size_t>(half) * 4;
  even = _mm256_or_si256(even, fifth_bits(at));
  odd = _mm256_or_si256(odd, fifth_bits(at + 8));
}

// Bits 2 p, 2 p + 1 of a byte of line h become bits 4 and 5 of quad 4 h + p.
inline void add_high_pairs(const uint8_t* lines, int half, size_t j, __m256i& even, __m256i& odd) {
  const __m256i mask = _mm256_set1_epi8(0x30);
  const __m256i line = load_bytes(lines + j / 2 * kLine + static_cast<size_t>(half) * kHalfLine);
  const __m256i first = j % 2 == 0 ? _mm256_slli_epi16(line, 4) : line;
  const __m256i second = j % 2 == 0 ? _mm256_slli_epi16(line, 2) : _mm256_srli_epi16(line, 2);
  even = _mm256_or_si256(even, _mm256_and_si256(first, mask));
  odd = _mm256_or_si256(odd, _mm256_and_si256(second, mask));
}

template <bool kFifthBits, bool kMin, int kZeroPoint>
struct Nibbles {
  static constexpr size_t kUnitGroups = 1;
  static constexpr size_t kCodeBytes = kFifthBits ? 320 : 256;
  static constexpr size_t kUnitBytes = kCodeBytes + (kMin ? 64 : 32);
  static constexpr bool kHasMin = kMin;
  static constexpr int kZero = kZeroPoint;
  static constexpr int kParts = 1;
  static constexpr int kBits = kFifthBits ? 5 : 4;

  static void pair(const uint8_t* unit, size_t, int half, size_t j, __m256i& even, __m256i& odd) {
    load_nibbles(unit, half, j, even, odd);
    if (kFifthBits) add_fifth_bits(unit + 256, half, j, even, odd);
  }
  static __m256 scale(const uint8_t* unit, size_t, int half, int) {
    return load_halves(unit + kCodeBytes + half * 16);
  }
  static __m256 minimum(const uint8_t* unit, size_t, int half) {
    return kMin ? load_halves(unit + kCodeBytes + 32 + half * 16) : _mm256_setzero_ps();
  }
};

using Q4 = Nibbles<false, false, 8>;
using Q4M = Nibbles<false, true, 0>;
using Q5 = Nibbles<true, false, 16>;
using Q5M = Nibbles<true, true, 0>;

struct Q8 {
  static constexpr size_t kUnitGroups = 1;
  static constexpr size_t kUnitBytes = 544;
  static constexpr bool kHasMin = false;
  static constexpr int kZero = 128;
  static constexpr int kParts = 1;
  static constexpr int kBits = 8;

  static void pair(const uint8_t* unit, size_t, int half, size_t j, __m256i& even, __m256i& odd) {
    even = load_bytes(unit + 2 * j * kLine + static_cast<size_t>(half) * kHalfLine);
    odd = load_bytes(unit + (2 * j + 1) * kLine + static_cast<size_t>(half) * kHalfLine);
  }
  static __m256 scale(const uint8_t* unit, size_t, int half, int) {
    return load_halves(unit + 512 + half * 16);
  }
  static __m256 minimum(const uint8_t*, size_t, int) { return _mm256_setzero_ps(); }
};

template <bool kFifthBits>
struct SuperNibbles {
  static constexpr size_t kUnitGroups = 8;
  static constexpr size_t kScales = 64, kMins = 192, kCodes = 320;
  static constexpr size_t kCodeBytes = kFifthBits ? 320 : 256;
  static constexpr size_t kUnitBytes = kCodes + 8 * kCodeBytes;
  static constexpr bool kHasMin = true;
  static constexpr int kZero = 0;
  static constexpr int kParts = 1;
  static constexpr int kBits = kFifthBits ? 5 : 4;

  static void pair(const uint8_t* unit, size_t i, int half, size_t j, __m256i& even, __m256i& odd) {
    const uint8_t* codes = unit + kCodes + i * kCodeBytes;
    load_nibbles(codes, half, j, even, odd);
    if (kFifthBits) add_fifth_bits(codes + 256, half, j, even, odd);
  }
  static __m256 scale(const uint8_t* unit, size_t i, int half, int) {
    return _mm256_mul_ps(load_halves(unit + half * 16),
                         load_u8(unit + kScales + i * kLanes + half * 8));
  }
  static __m256 minimum(const uint8_t* unit, size_t i, int half) {
    const __m256 m = _mm256_mul_ps(load_halves(unit + 32 + half * 16),
                                   load_u8(unit + kMins + i * kLanes + half * 8));
    return _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
  }
};

using Q4K = SuperNibbles<false>;
using Q5K = SuperNibbles<true>;

struct Q6K {
  static constexpr size_t kUnitGroups = 8;
  static constexpr size_t kScales = 32, kCodes = 288, kCodeBytes = 384;
  static constexpr size_t kUnitBytes = kCodes + 8 * kCodeBytes;
  static constexpr bool kHasMin = false;
  static constexpr int kZero = 32;
  static constexpr int kParts = 2;
  static constexpr int kBits = 6;

  static void pair(const uint8_t* unit, size_t i, int half, size_t j, __m256i& even, __m256i& odd) {
    const uint8_t* codes = unit + kCodes + i * kCodeBytes;
    load_nibbles(codes, half, j, even, odd);
    add_high_pairs(codes + 256, half, j, even, odd);
  }
  static __m256 scale(const uint8_t* unit, size_t i, int half, int part) {
    const size_t at = 2 * i + static_cast<size_t>(part);
    return _mm256_mul_ps(load_halves(unit + half * 16),
                         load_i8(unit + kScales + at * kLanes + half * 8));
  }
  static __m256 minimum(const uint8_t*, size_t, int) { return _mm256_setzero_ps(); }
};

}  // namespace

}  // namespace kvikk::avx2
