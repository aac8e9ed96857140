#pragma once
// How keys and values of a KV page lie in memory as codes of 2, 3, 4 or 8 bits (TurboQuant and its
// kin). A part (keys or values) is codes, then one half-float scale for each of the 64 tokens.
//
// The codes are units of 64: 4 dims x 16 tokens of keys, 16 dims x 4 tokens of values, one 64-byte
// line when unpacked to bytes, which is what vpdpbusd reads with a query's 4 dims, or with the
// weights of 4 tokens.
//   keys    4 blocks of 16 tokens, each: for every segment, a run of dims / 4 units;
//           lane of a unit = token % 16 * 4 + dim % 4
//   values  16 rows of 4 tokens, each: for every segment, a run of dims / 16 units;
//           lane of a unit = dim % 16 * 4 + token % 4
// A run of n units:
//   8 bits  n lines
//   4 bits  lines of two units, low nibbles first
//   2 bits  lines of four units, low bits first
//   3 bits  the low two bits as 2 bits, then the third bits: a u64 a unit, bit i = lane i
// value = scale of the token * level of the code; with 8 bits (code - 128) * step.

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace kvikk {

inline constexpr size_t kCodedSegmentsMax = 5;

// Dims that share a number of bits. 0 bits: they are zeros and take no room.
struct CodedSegment {
  uint32_t bits = 0;  // 0, 2, 3, 4, 8
  uint32_t dims = 0;  // a multiple of 16
};

struct CodedLayout {
  CodedSegment segments[kCodedSegmentsMax];
  // By bits: levels[2][0..3], levels[3][0..7], levels[4][0..15]; the rest repeats.
  float levels[5][16] = {};
  float step = 1.0f;  // of 8-bit codes
  // The same levels as bytes times a factor, within 1/254 of the largest; 8 bits: code - 128 and
  // the step.
  int8_t level_bytes[5][16] = {};
  float byte_scale[9] = {};  // by bits
};

// What joins the scores of a page because a mean was taken out of its keys before they were rotated
// (kv/coder.h): for each pair of dims a cosine and a sine of an angle that advances with the token.
// Angles count from the middle of a page. Pairs that hardly turn within a page are summed as one
// polynomial of the token: their angle there is at most kSlowAngle.
inline constexpr size_t kPositionPowers = 6;  // 1, x, ... x^5
inline constexpr float kSlowAngle = 0.25f;
inline constexpr float kPageMiddle = 31.5f;

struct PositionTerm {
  size_t fast = 0, slow = 0;        // pairs
  const uint32_t* pairs = nullptr;  // [fast + slow]: their places in the tables
  size_t table_pairs = 0;
  const float* angles = nullptr;  // [cosines, sines][table_pairs][64] of (token - middle) f
  // [kPositionPowers][table_pairs]: f^k / k! with the signs of the series of cosine and sine
  const float* powers = nullptr;
};

// Queries of one KV head against coded pages of it, in integers. A query comes as bytes: its dims
// times the byte_scale of their segment are query_scale * (128 * high + low). A page's softmax
// weights, times the values' scales, become 8 bits of the largest of the page.
struct CodedAttendArgs : AttendRows {
  const CodedLayout* keys = nullptr;
  const CodedLayout* values = nullptr;  // one segment
  size_t value_offset = 0;              // of the values in a page, after the keys
  const int8_t* query_bytes = nullptr;  // [rows][2][dims]: high, low
  bool two_halves = false;              // else low is nothing and high counts 1
  const int32_t* query_sums = nullptr;  // [rows][2] of the bytes
  const float* query_scales = nullptr;  // [rows]
  // What joins the scores; null: nothing. Row r has a constant at terms[r * terms_stride], then of
  // each pair its share of the cosine, then [terms_pairs] further on of the sine, for angle 0.
  const PositionTerm* position = nullptr;
  const float* terms = nullptr;
  size_t terms_stride = 0, terms_pairs = 0;
  const float* const* turns = nullptr;  // [page_count]: [cosines, sines][table_pairs] of the middle
};

// static: each file has its own copy (float16.h says why).
static inline size_t coded_dims(const CodedLayout& layout) {
  size_t sum = 0;
  for (const CodedSegment& s : layout.segments) sum += s.dims;
  return sum;
}

static inline size_t coded_run_bytes(size_t bits, size_t units) {
  switch (bits) {
    case 8:
      return 64 * units;
    case 4:
      return 64 * ((units + 1) / 2);
    case 3:
      return 64 * ((units + 3) / 4) + 8 * units;
    case 2:
      return 64 * ((units + 3) / 4);
    default:
      return 0;
  }
}

// Bytes of the codes of 16 tokens of keys, of 4 tokens of values.
static inline size_t coded_key_block_bytes(const CodedLayout& layout) {
  size_t bytes = 0;
  for (const CodedSegment& s : layout.segments) bytes += coded_run_bytes(s.bits, s.dims / 4);
  return bytes;
}
static inline size_t coded_value_row_bytes(const CodedLayout& layout) {
  size_t bytes = 0;
  for (const CodedSegment& s : layout.segments) bytes += coded_run_bytes(s.bits, s.dims / 16);
  return bytes;
}

// Calls f with the number of bits as a constant: f(CodeBits<4>{}). Codes of 0 bits are not there.
template <size_t kCount>
struct CodeBits {
  static constexpr size_t kBits = kCount;
};
template <class F>
static inline void with_code_bits(size_t bits, F&& f) {
  switch (bits) {
    case 8:
      return f(CodeBits<8>{});
    case 4:
      return f(CodeBits<4>{});
    case 3:
      return f(CodeBits<3>{});
    case 2:
      return f(CodeBits<2>{});
    default:
      return;
  }
}

inline constexpr size_t kCodedScaleBytes = 64 * 2;

static inline size_t coded_key_bytes(const CodedLayout& layout) {
  return 4 * coded_key_block_bytes(layout) + kCodedScaleBytes;
}
static inline size_t coded_value_bytes(const CodedLayout& layout) {
  return 16 * coded_value_row_bytes(layout) + kCodedScaleBytes;
}

}  // namespace kvikk
