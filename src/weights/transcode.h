#pragma once
// Types that have no panel format of their own are rewritten, block by block while a tensor is
// packed, in one that has: the type they are resident in. What that costs:
//
//   Q3_K, IQ3_S              -> Q6_K   nothing: the same integers and scales
//   IQ1_S, IQ1_M, IQ3_XXS    -> Q6_K   nothing, unless d / 8 (d / 2) is below 2^-14, where float16
//                                      has fewer bits: at most 2^-25 per unit of d
//   TQ1_0, TQ2_0             -> Q4_0   nothing
//   IQ4_NL                   -> Q8_0   nothing
//   MXFP4                    -> Q8_0   nothing for exponents 2^-24 .. 2^18; a weight of a smaller
//                                      block moves by less than 2^-21
//   IQ4_XS, IQ2_XXS          -> Q8_0   the same integers; d * scale rounded to float16, 2^-11
//   IQ2_XS, IQ2_S            -> Q8_0   the same where both scales of a group of 32 agree
//   Q2_K, other IQ2_*        -> Q8_0   rounded to 8 bit: at most 1/254 of the largest weight of 32
//                                      (their own rounding error is 40 times that)

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvikk {

// The type itself if panels hold it as it is.
DType resident_type(DType type);

// Rewrites a row of `elements` in resident_type(type), which must not be `type`; `target` has
// row_bytes(resident_type(type), elements). A scale that is not finite, or too large for float16,
// stays one that is not finite.
void transcode_row(DType type, const uint8_t* source, uint8_t* target, size_t elements);

}  // namespace kvikk
