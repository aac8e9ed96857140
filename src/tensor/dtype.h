#pragma once
// The element encodings of weight tensors as files store them. A block is the smallest unit that
// decodes on its own; a row of a matrix is a whole number of blocks.

#include <cstddef>
#include <cstdint>

namespace kvikk {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
};

inline constexpr size_t kDTypeCount = static_cast<size_t>(DType::kTQ2_0) + 1;

struct DTypeInfo {
  const char* name;       // as the field writes it: "Q4_K"
  size_t block_elements;  // elements that one block holds
  size_t block_bytes;     // bytes of one block
};

const DTypeInfo& dtype_info(DType type);

// Bytes of a row of `elements`, which must be a whole number of blocks.
size_t row_bytes(DType type, size_t elements);

}  // namespace kvikk
