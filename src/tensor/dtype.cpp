#include "tensor/dtype.h"

#include "base/check.h"

namespace kvikk {

const DTypeInfo& dtype_info(DType type) {
  static constexpr DTypeInfo kInfo[kDTypeCount] = {
      {"F32", 1, 4},      {"F16", 1, 2},        {"BF16", 1, 2},       {"Q8_0", 32, 34},
      {"Q4_0", 32, 18},   {"Q4_1", 32, 20},     {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
      {"Q4_K", 256, 144}, {"Q5_K", 256, 176},   {"Q6_K", 256, 210},   {"Q2_K", 256, 84},
      {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18},   {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},
      {"IQ1_S", 256, 50}, {"IQ1_M", 256, 56},   {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},
      {"IQ2_S", 256, 82}, {"IQ3_XXS", 256, 98}, {"IQ3_S", 256, 110},  {"TQ1_0", 256, 54},
      {"TQ2_0", 256, 66}, {"F8_E4M3", 1, 1},    {"F8_E8M0", 1, 1},    {"F4_E2M1", 32, 16},
      {"BOOL", 1, 1},     {"I8", 1, 1},         {"U8", 1, 1},         {"I16", 1, 2},
      {"I32", 1, 4},      {"I64", 1, 8},        {"F64", 1, 8},
  };
  return kInfo[static_cast<size_t>(type)];
}

size_t row_bytes(DType type, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace kvikk
