#include "tensor/dtype.h"

#include "base/check.h"

namespace kvikk {

const DTypeInfo& dtype_info(DType type) {
  static constexpr DTypeInfo kInfo[] = {
      {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q8_0", 32, 34},
      {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
      {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
  };
  return kInfo[static_cast<size_t>(type)];
}

size_t row_bytes(DType type, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace kvikk
