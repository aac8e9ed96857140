#pragma once
// Reads everything in a SafetensorsFolder through its public interface, so that a fuzzer or a
// sanitizer sees every access. Returns a number that depends on what was read.

#include <cstdint>
#include <vector>

#include "weights/safetensors.h"
#include "weights/tensor_rows.h"

namespace kvikk {

inline uint64_t walk_safetensors(const SafetensorsFolder& folder) {
  constexpr uint64_t kElementsMax = 1 << 20;  // rows may be claimed to be empty but many
  uint64_t sum = 1;
  for (const StoredTensor& tensor : folder.tensors()) {
    sum += tensor.bytes.size() + (folder.find_tensor(tensor.name) == &tensor ? 1 : 0);
    const uint64_t elements = tensor.elements();
    if (!is_weight_type(tensor.type) || elements == 0 || elements > kElementsMax) continue;
    if (!is_readable(tensor)) continue;
    const uint64_t columns = tensor.shape.empty() ? 1 : tensor.shape[0];
    sum += folder.validate_blocks(tensor, 0, elements).ok() ? 1 : 2;
    std::vector<float> values(columns);
    std::vector<uint8_t> scratch(stored_row_bytes(tensor));
    for (uint64_t row = 0; row < elements / columns; ++row) {
      read_row(tensor, row, values.data());
      sum += values[0] > 0 ? 3 : 4;
      sum += stored_row(tensor, row, scratch.data())[0];
    }
  }
  return sum;
}

}  // namespace kvikk
