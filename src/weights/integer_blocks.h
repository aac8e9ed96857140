#pragma once
// Blocks whose every weight is (d * an integer scale of its 16) * an integer, small enough for int8
// each: Q3_K, the ternary types, MXFP4, and the types with a code book (IQ*). Decoding to integers
// serves both the exact float values and the packing into panels.
//
//   Q3_K     32 bytes of third bits, 64 of bit pairs, 12 of 6-bit scales, d
//            16 groups of 16: d * (scale - 32) * (q - 4), where a third bit of 1 adds 4
//   IQ4_NL   d, 16 bytes of nibbles: d * table[q]; low nibbles hold 0..15, high 16..31
//   IQ4_XS   d, high scale bits u16, low scale bits [4], 8 groups as IQ4_NL's nibbles:
//            d * (scale - 32) * table[q]
//   MXFP4    exponent e, 16 bytes of nibbles as IQ4_NL: 2^(e - 128) * table[q]
//   IQ2_XXS  d, 8 groups of 32: four code book rows u8, u32 of 4 x 7 sign bits and a 4-bit scale:
//            d / 8 * (2 scale + 1) * (+-)row; the eighth sign makes their number even
//   IQ2_XS   d, 32 x u16 (9 bits row, 7 bits signs), scales [8] (a nibble for each 16)
//   IQ2_S    d, rows [32], signs [32], high row bits [8] (a pair for each row), scales [8]
//   IQ3_XXS  d, rows [64] of four elements, u32 for each group of 32 as IQ2_XXS:
//            d / 2 * (2 scale + 1) * (+-)row / 2
//   IQ3_S    d, rows [64], ninth row bits [8], signs [32], scales [4] (a nibble for each 32):
//            d * (2 scale + 1) * (+-)row
//   IQ1_S    d, rows [32], u16 for each group of 32 (4 x 3 high row bits, 3-bit scale, shift's
//            sign): d * (2 scale + 1) * (row +- 1/8)
//   IQ1_M    rows [32], nibbles [16 bytes] (3 high row bits, shift's sign), 4 x u16 (4 x 3-bit
//            scale of 16 elements; the top nibbles together are d)
//   TQ1_0    five trits in a byte [48], four in a byte [4], d: d * (trit - 1)
//   TQ2_0    64 bytes of bit pairs, d: d * (pair - 1)

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvikk {

inline constexpr size_t kIntegerBlockMax = 256;  // elements

// Element i is (d * scales[i / 16]) * codes[i].
struct IntegerBlock {
  float d = 0.0f;
  int8_t scales[kIntegerBlockMax / 16] = {};
  int8_t codes[kIntegerBlockMax] = {};
};

// Whether a type can be read in this way.
bool has_integer_blocks(DType type);

// Decodes one block of `type`; only its own number of elements is written. No |code| is above
// integer_code_max(type), no |scale| above 32 (Q3_K, IQ4_XS) or 31.
void decode_integer_block(DType type, const uint8_t* block, IntegerBlock& target);
int integer_code_max(DType type);

// Whether the scale of a block is a number: d finite, an MXFP4 exponent not 255.
bool integer_block_finite(DType type, const uint8_t* block);

}  // namespace kvikk
