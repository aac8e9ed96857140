#pragma once
// Coded vectors as the search kernels read them, and what they compute.
//
// 16 vectors lie interleaved in a block. A group of dims has codes of `bits` bits, kept in planes:
// the top two bits, the next two, ..., and a plane of one bit when bits is odd. The top plane of
// each group lies in the block's top part, the others in its rest, so that a first pass over the
// top bits reads nothing else. Where code bits of dim i (of its group) of vector v lie:
//   plane of 2 bits: byte (i / 16) * 64 + v * 4 + i % 4, bits 2 j and 2 j + 1, j = i % 16 / 4
//   plane of 1 bit:  byte (i / 32) * 64 + v * 4 + i % 4, bit i % 32 / 16 * 2 + j % 2 + j / 2 * 4
// So a register of 64 bytes, shifted and looked up, is 16 vectors x 4 dims: what a product of bytes
// adds up into 16 sums, and what the tile unit reads.

#include <cstddef>
#include <cstdint>

namespace kvikk {

inline constexpr size_t kSearchBlock = 16;     // vectors of a block
inline constexpr size_t kSearchDims = 32;      // the dims of a group are a multiple
inline constexpr size_t kSearchPlanesMax = 4;  // of a group
inline constexpr size_t kSearchTableSize = 64;
inline constexpr size_t kSearchTableBitsMax = 6;  // 8-bit codes are their own levels
// Queries that one call of a kernel takes; 16 are one operand of the tile unit.
inline constexpr size_t kSearchQueriesMax = 64;

struct SearchGroup {
  uint32_t dims = 0;
  uint8_t bits = 0;         // of the codes that are read: 1 to 6, or 8
  bool ends_class = false;  // the integer sum is scaled and added after this group
  uint32_t top = 0;         // offset of the top plane in the block's top part
  uint32_t rest = 0;        // of the second plane in the rest; the others follow it
  // Level + 128 by code, repeated; unused for 8 bits, where it is the code.
  alignas(64) uint8_t table[kSearchTableSize] = {};
};

inline constexpr size_t search_plane_bytes(size_t dims, bool two_bits) {
  return dims * kSearchBlock * (two_bits ? 2 : 1) / 8;
}

// For query q and vector v, in this order, each step rounded to float32:
//   sum = first[q];  for each class c:  sum = sum + float(dot_c) * steps[q][c]
// with dot_c = the sum over the class's dims of (level - 128) * query code, exactly. So every
// level of instructions gives the same bits.
struct SearchScanArgs {
  const SearchGroup* groups = nullptr;  // [group_count]; the last one ends a class
  size_t group_count = 0;
  const uint8_t* top = nullptr;  // [blocks, top_stride]
  size_t top_stride = 0;
  const uint8_t* rest = nullptr;  // [blocks, rest_stride]; not read by groups of one plane
  size_t rest_stride = 0;
  size_t blocks = 0;
  const int8_t* queries = nullptr;  // [queries, query_stride]: dims of all groups, in -127..127
  size_t query_stride = 0;          // a multiple of 64; 64 bytes behind the last row can be read
  size_t query_count = 0;           // 1 to kSearchQueriesMax
  size_t classes = 0;
  const int32_t* code_sums = nullptr;  // [queries, classes]: of the query's codes
  const float* steps = nullptr;        // [queries, classes]
  const float* first = nullptr;        // [queries]
  float* sums = nullptr;               // out [queries, sum_stride]
  size_t sum_stride = 0;               // >= blocks * 16
};

// score = sum * scale; score = score + constant; with norms: score = score - norm. The scale is
// its 16 bits moved up by 13, plus 96 in the exponent (6 bits of exponent and 10 of mantissa), or 0
// for 0.
struct SearchSelectArgs {
  const float* sums = nullptr;       // [blocks * 16]
  const uint16_t* scales = nullptr;  // [blocks * 16]
  const float* norms = nullptr;      // [blocks * 16], or null
  size_t blocks = 0;
  float constant = 0;
  float threshold = 0;
  float* scores = nullptr;    // out [blocks * 16]
  uint16_t* masks = nullptr;  // out [blocks]: bit v: score >= threshold
};

// out[r][j] = the sum over k ascending of a[r][k] * b[k][j], each product and each sum rounded to
// float32: no fused multiply-add, so that every level gives the same bits.
struct SearchProductArgs {
  const float* a = nullptr;  // [rows, a_stride]
  size_t a_stride = 0;
  const float* b = nullptr;  // [k, b_stride]
  size_t b_stride = 0;       // a multiple of 16, >= columns; what lies behind columns is read
  float* out = nullptr;      // [rows, out_stride]; columns behind `columns` are written too
  size_t out_stride = 0;     // a multiple of 16
  size_t rows = 0;
  size_t columns = 0;
  size_t k = 0;
};

// codes[i] = how many of the ascending thresholds are <= x[i] * factor; NaN: 0.
struct SearchCodesArgs {
  const float* x = nullptr;  // [count]
  size_t count = 0;
  float factor = 0;
  const float* thresholds = nullptr;  // [threshold_count]
  size_t threshold_count = 0;         // at most 63
  uint8_t* codes = nullptr;           // out [count]
};

}  // namespace kvikk
