#pragma once
// Reads everything that a GgufFile offers, as a loader would: for tests and the fuzzer, whose
// sanitizers then see every byte that a hostile file can reach.

#include <algorithm>
#include <vector>

#include "weights/block_formats.h"
#include "weights/gguf.h"

namespace kvikk {

// The sum of the sizes of what was read, so that nothing is optimized away.
inline size_t walk_gguf(const GgufFile& file) {
  size_t sum = file.path().size() + file.version();
  for (const auto& [key, value] : file.metadata()) {
    for (const uint8_t byte : value.bytes) sum += byte;
    sum += file.get_uint(key).ok() + file.get_float(key).ok() + file.get_bool(key).ok();
    if (const auto text = file.get_string(key); text.ok()) sum += text->size();
    if (const auto list = file.get_strings(key); list.ok()) {
      for (const std::string& text : *list) sum += text.size();
    }
    if (const auto list = file.get_floats(key); list.ok()) sum += list->size();
    if (const auto list = file.get_ints(key); list.ok()) sum += list->size();
  }
  std::vector<float> row;
  for (const StoredTensor& tensor : file.tensors()) {
    sum += file.find_tensor(tensor.name) == &tensor;
    sum += file.validate_blocks(tensor, 0, tensor.elements()).ok();
    const uint64_t rows = tensor.elements() / tensor.shape[0];
    row.resize(tensor.shape[0]);
    const size_t stride = row_bytes(tensor.type, tensor.shape[0]);
    for (uint64_t r = 0; r < rows; ++r) {
      dequantize_row(tensor.type, tensor.bytes.data() + r * stride, row.data(), row.size());
      sum += static_cast<size_t>(row.back() > 0);
    }
  }
  return sum;
}

}  // namespace kvikk
