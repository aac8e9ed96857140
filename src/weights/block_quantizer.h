#pragma once
// float32 to Q8_0, Q4_0 or Q4_K blocks: what --weights does while a model is loaded.
//
// Q8_0, Q4_0: rounded as the format's reference does (ggml), bit for bit.
// Q4_K: scale and minimum of each group of 32 by least squares over a range of candidates, then the
// 6-bit scales and the two float16 above them refined together; the sum of squared errors decides.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace kvikk {

// "q8_0", "q4_0" or "q4_k".
std::optional<DType> quantized_type(std::string_view name);

// The type that rows of `elements` are quantized to when `wanted` was asked for: Q8_0 in place of a
// Q4_K whose 256 do not divide the row, nothing (they stay as they are) if 32 does not either.
std::optional<DType> fitting_type(DType wanted, size_t elements);

// Returns false, with some value in its place, if an element is not finite or a scale is too large
// for float16.
[[nodiscard]] bool quantize_row(DType type, const float* source, uint8_t* target, size_t elements);

}  // namespace kvikk
