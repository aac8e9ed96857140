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
  // Of safetensors. FP8 and FP4 have their scales in another tensor (BlockScales).
  kF8_E4M3,
  kF8_E8M0,  // a power of two: only as scales
  kF4_E2M1,  // element 2 i of a block of 32 in the low nibble of byte i
  // Known by size only: no weight that a model computes with has them.
  kBool,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kF64,
};

inline constexpr size_t kDTypeCount = static_cast<size_t>(DType::kF64) + 1;

// Whether weights can have this type: it decodes to float32, with scales where it needs them.
inline constexpr bool is_weight_type(DType type) {
  return type <= DType::kF8_E4M3 || type == DType::kF4_E2M1;
}

struct DTypeInfo {
  const char* name;       // as the field writes it: "Q4_K"
  size_t block_elements;  // elements that one block holds
  size_t block_bytes;     // bytes of one block
};

const DTypeInfo& dtype_info(DType type);

// Bytes of a row of `elements`, which must be a whole number of blocks.
size_t row_bytes(DType type, size_t elements);

}  // namespace kvikk
