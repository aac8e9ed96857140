#pragma once
// How each DType packs its elements: the byte layouts of GGUF blocks, and their exact values.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvikk {

// Decodes `elements` (a whole number of blocks) from `source` to float32, exactly: value = scale * integer
// (+ minimum), each product rounded once as the format defines it.
void dequantize_row(DType type, const uint8_t* source, float* target, size_t elements);

}  // namespace kvikk
