#pragma once
// The quantized panel formats as AVX-512 code: how a group of 32 becomes eight registers of
// unsigned bytes (one quad each), its scales and its minima. Every matmul template is written once
// over these. All in an anonymous namespace: nothing here may be shared between object files that
// are compiled for different processors.

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 complains about the _mm512_undefined_ps() inside of its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace kvikk::avx512 {

namespace {

constexpr size_t kQuads = 8;    // of a group of 32
constexpr size_t kLine = 64;    // bytes of an unpacked quad: [16 rows][4 k]
constexpr size_t kLanes = 16;   // rows of a panel
constexpr size_t kGroupK = 32;  // k of a group
constexpr size_t kBlock = 16;   // activation rows of a block

typedef __mmask64 Mask __attribute__((may_alias));

inline __m512i load_line(const uint8_t* p) { return _mm512_loadu_si512(p); }

inline __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline __m512 load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

inline __m512 load_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

inline void load_bytes(const uint8_t* p, __m512i (&quads)[kQuads]) {
#pragma GCC unroll 8
  for (size_t j = 0; j < kQuads; ++j) quads[j] = load_line(p + j * kLine);
}

inline void load_nibbles(const uint8_t* p, __m512i (&quads)[kQuads]) {
  const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
  for (size_t j = 0; j < kQuads / 2; ++j) {
    const __m512i line = load_line(p + j * kLine);
    quads[2 * j] = _mm512_and_si512(line, low);
    quads[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
  }
}

// Adds 16 where the bit of the byte is set; the eight masks follow the nibbles.
inline void add_fifth_bits(const uint8_t* p, __m512i (&quads)[kQuads]) {
  const __m512i sixteen = _mm512_set1_epi8(16);
#pragma GCC unroll 8
  for (size_t j = 0; j < kQuads; ++j) {
    const __mmask64 bits = *reinterpret_cast<const Mask*>(p + j * 8);
    quads[j] = _mm512_mask_add_epi8(quads[j], bits, quads[j], sixteen);
  }
}

// Bits 2 p, 2 p + 1 of a byte of line h become bits 4 and 5 of quad 4 h + p.
inline void add_high_pairs(const uint8_t* p, __m512i (&quads)[kQuads]) {
  const __m512i mask = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    const __m512i line = load_line(p + h * kLine);
    __m512i* quad = quads + 4 * h;  // 0xf8: a | (b & c)
    quad[0] = _mm512_ternarylogic_epi32(quad[0], _mm512_slli_epi16(line, 4), mask, 0xf8);
    quad[1] = _mm512_ternarylogic_epi32(quad[1], _mm512_slli_epi16(line, 2), mask, 0xf8);
    quad[2] = _mm512_ternarylogic_epi32(quad[2], line, mask, 0xf8);
    quad[3] = _mm512_ternarylogic_epi32(quad[3], _mm512_srli_epi16(line, 2), mask, 0xf8);
  }
}

// A format gives, for group i of the unit at `unit`:
//   quads    the unsigned codes
//   scale    of the dot `part` (kParts = 2 when 16 k share a scale, else 1)
//   minimum  what is multiplied with the weighted sum, when kHasMin
// and kZero, the code that means zero.

template <bool kFifthBits, bool kMin, int kZeroPoint>
struct Nibbles {
  static constexpr size_t kUnitGroups = 1;
  static constexpr size_t kCodeBytes = kFifthBits ? 320 : 256;
  static constexpr size_t kUnitBytes = kCodeBytes + (kMin ? 64 : 32);
  static constexpr bool kHasMin = kMin;
  static constexpr int kZero = kZeroPoint;
  static constexpr int kParts = 1;

  static void quads(const uint8_t* unit, size_t, __m512i (&out)[kQuads]) {
    load_nibbles(unit, out);
    if (kFifthBits) add_fifth_bits(unit + 256, out);
  }
  static __m512 scale(const uint8_t* unit, size_t, int) { return load_halves(unit + kCodeBytes); }
  static __m512 minimum(const uint8_t* unit, size_t) {
    return kMin ? load_halves(unit + kCodeBytes + 32) : _mm512_setzero_ps();
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

  static void quads(const uint8_t* unit, size_t, __m512i (&out)[kQuads]) { load_bytes(unit, out); }
  static __m512 scale(const uint8_t* unit, size_t, int) { return load_halves(unit + 512); }
  static __m512 minimum(const uint8_t*, size_t) { return _mm512_setzero_ps(); }
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

  static void quads(const uint8_t* unit, size_t i, __m512i (&out)[kQuads]) {
    const uint8_t* codes = unit + kCodes + i * kCodeBytes;
    load_nibbles(codes, out);
    if (kFifthBits) add_fifth_bits(codes + 256, out);
  }
  static __m512 scale(const uint8_t* unit, size_t i, int) {
    return _mm512_mul_ps(load_halves(unit), load_u8(unit + kScales + i * kLanes));
  }
  static __m512 minimum(const uint8_t* unit, size_t i) {
    const __m512 m = _mm512_mul_ps(load_halves(unit + 32), load_u8(unit + kMins + i * kLanes));
    return _mm512_xor_ps(m, _mm512_set1_ps(-0.0f));
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

  static void quads(const uint8_t* unit, size_t i, __m512i (&out)[kQuads]) {
    const uint8_t* codes = unit + kCodes + i * kCodeBytes;
    load_nibbles(codes, out);
    add_high_pairs(codes + 256, out);
  }
  static __m512 scale(const uint8_t* unit, size_t i, int part) {
    const size_t at = 2 * i + static_cast<size_t>(part);
    return _mm512_mul_ps(load_halves(unit), load_i8(unit + kScales + at * kLanes));
  }
  static __m512 minimum(const uint8_t*, size_t) { return _mm512_setzero_ps(); }
};

// Consecutive activation rows of one block, from some group on. Of group g, row r: codes at
// (g * stride + r) * 32.
struct ActivationRows {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  const float* weighted_sums;
  size_t stride;  // rows of the block
};

inline ActivationRows rows_at(const QuantizedRows& x, size_t row, size_t group) {
  const size_t block = row / kBlock * kBlock;
  const size_t stride = x.rows - block < kBlock ? x.rows - block : kBlock;
  const size_t at = block * x.groups + group * stride + (row - block);
  return {x.codes + at * kGroupK, x.scales + at, x.sums + 2 * at, x.weighted_sums + at, stride};
}

}  // namespace

}  // namespace kvikk::avx512
