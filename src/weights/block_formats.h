#pragma once
// How each DType packs its elements: the byte layouts of GGUF blocks, and their exact values.
//
// d, m: float16. q: integers. A block of 32 (Q4_0 ... Q8_0) or 256 elements (the K types):
//   Q8_0  d, int8 q[32]: d * q
//   Q4_0  d, 16 bytes of nibbles, low nibbles for elements 0..15, high for 16..31: d * (q - 8)
//   Q4_1  d, m, nibbles: d * q + m
//   Q5_0  d, fifth bits as u32 (bit i belongs to element i), nibbles: d * (q - 16)
//   Q5_1  d, m, fifth bits as u32, nibbles: d * q + m
//   Q4_K  d, m, 12 bytes of 6-bit scales and minimums, 128 bytes of nibbles;
//         8 groups of 32: (d * scale) * q - (m * minimum)
//   Q5_K  like Q4_K, with 32 bytes of fifth bits before the nibbles: bit g of byte i is element i
//         of group g
//   Q6_K  128 bytes of nibbles, 64 bytes of high bit pairs, int8 scales[16], d;
//         16 groups of 16: (d * scale) * (q - 32)
//   Q2_K  scale and minimum nibbles [16], 64 bytes of bit pairs, d, m;
//         16 groups of 16: (d * scale) * q - (m * minimum)
// The other types are in integer_blocks.h.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tensor/dtype.h"

namespace kvikk {

// Decodes `elements` of a weight type (a whole number of blocks) from `source` to float32, exactly:
// value = scale * integer (+ minimum), each product rounded once as the format defines it. Scales
// in another tensor are not applied, so not for F4_E2M1: see tensor_rows.h.
void dequantize_row(DType type, const uint8_t* source, float* target, size_t elements);

// The index of the first block of `source` that holds a scale (or, in the float types, an element)
// that is NaN or infinite; nothing if all are finite. `elements` is a whole number of blocks. Reads
// only the scales, and is meant to be called on rows that are read anyway, while they are in the
// cache.
std::optional<size_t> find_non_finite_block(DType type, const uint8_t* source, size_t elements);

// 8 bits: sign, exponent with bias 7, 3 bits of mantissa; no infinity, all ones is NaN.
float e4m3_to_float(uint8_t bits);

// The 6-bit scales and minimums of the 8 groups of a Q4_K or Q5_K block, from its 12 packed bytes.
void unpack_k_scales(const uint8_t* packed /* [12] */, uint8_t* scales /* [8] */,
                     uint8_t* minimums /* [8] */);

}  // namespace kvikk
