#include "weights/tensor_rows.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "weights/block_formats.h"
#include "weights/block_quantizer.h"
#include "weights/half_round.h"
#include "weights/pack.h"

namespace kvikk {
namespace {

constexpr size_t kFp4Group = 32;
constexpr size_t kFp4GroupBytes = 16;
constexpr size_t kMxfp4Bytes = 17;

size_t columns_of(const StoredTensor& tensor) {
  return tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape[0]);
}

// The bytes of a row in the file.
const uint8_t* row_in_file(const StoredTensor& tensor, uint64_t row) {
  const size_t bytes = row_bytes(tensor.type, columns_of(tensor));
  CHECK((row + 1) * bytes <= tensor.bytes.size());
  return tensor.bytes.data() + row * bytes;
}

// The scales of the blocks that a row crosses.
const uint8_t* scales_of_row(const StoredTensor& tensor, uint64_t row, size_t& count) {
  const BlockScales& scales = tensor.scales;
  count = (columns_of(tensor) + scales.block_columns - 1) / scales.block_columns;
  const size_t bytes = row_bytes(scales.type, count);
  const uint64_t at = row / scales.block_rows * bytes;
  CHECK(at + bytes <= scales.bytes.size());
  return scales.bytes.data() + at;
}

// FP4 with E8M0 scales as MXFP4 blocks: there, byte j holds elements j and j + 16.
void fp4_to_mxfp4(const uint8_t* pairs, const uint8_t* scales, size_t groups, uint8_t* target) {
  for (size_t g = 0; g < groups; ++g, pairs += kFp4GroupBytes, target += kMxfp4Bytes) {
    target[0] = scales[g];
    for (size_t i = 0; i < 16; ++i) {
      const unsigned low = pairs[i / 2] >> (i % 2 * 4) & 15u;
      const unsigned high = pairs[8 + i / 2] >> (i % 2 * 4) & 15u;
      target[1 + i] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

// Rows of a transposed matrix: elements that lie `stride` apart. All lanes at once, so that each
// line of memory is read once.
template <class T>
void gather(const PanelRows& rows, size_t inputs, uint8_t* target) {
  const StoredTensor& tensor = *rows.tensor;
  const size_t outputs = columns_of(tensor);
  const uint8_t* first[kPanelRows];
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    first[lane] = nullptr;
    if (rows.rows[lane] < 0) continue;
    const auto row = static_cast<uint64_t>(rows.rows[lane]);
    const uint64_t at = row / outputs * inputs * outputs + row % outputs;
    CHECK((at + (inputs - 1) * outputs + 1) * sizeof(T) <= tensor.bytes.size());
    first[lane] = tensor.bytes.data() + at * sizeof(T);
  }
  for (size_t i = 0; i < inputs; ++i) {
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      if (first[lane] == nullptr) continue;
      std::memcpy(target + (lane * inputs + i) * sizeof(T), first[lane] + i * outputs * sizeof(T),
                  sizeof(T));
    }
  }
}

// Sixteen rows as they are stored: pointers into the file or into `memory`.
void fetch_rows(const PanelRows& rows, size_t k, std::vector<uint8_t>& memory,
                const uint8_t** pointers) {
  const StoredTensor& tensor = *rows.tensor;
  const size_t bytes = rows.transposed ? row_bytes(tensor.type, k) : stored_row_bytes(tensor);
  memory.resize(bytes * kPanelRows);
  if (rows.transposed) {
    CHECK(tensor.scales.empty());
    if (tensor.type == DType::kF32) {
      gather<uint32_t>(rows, k, memory.data());
    } else {
      CHECK(tensor.type == DType::kF16 || tensor.type == DType::kBF16);
      gather<uint16_t>(rows, k, memory.data());
    }
  }
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    pointers[lane] = nullptr;
    if (rows.rows[lane] < 0) continue;
    uint8_t* own = memory.data() + lane * bytes;
    pointers[lane] =
        rows.transposed ? own : stored_row(tensor, static_cast<uint64_t>(rows.rows[lane]), own);
  }
}

// The float32 rows of a panel, in the exact sense of read_row.
void fetch_floats(const PanelRows& rows, size_t k, std::vector<float>& floats,
                  const uint8_t** pointers) {
  std::vector<uint8_t> memory;
  if (rows.transposed) fetch_rows(rows, k, memory, pointers);
  floats.resize(k * kPanelRows);
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    float* row = floats.data() + lane * k;
    const bool there = rows.rows[lane] >= 0;
    if (there && rows.transposed) dequantize_row(rows.tensor->type, pointers[lane], row, k);
    if (there && !rows.transposed) {
      read_row(*rows.tensor, static_cast<uint64_t>(rows.rows[lane]), row);
    }
    pointers[lane] = there ? reinterpret_cast<const uint8_t*>(row) : nullptr;
  }
}

}  // namespace

bool is_readable(const StoredTensor& tensor) {
  if (tensor.type == DType::kF4_E2M1) return tensor.scales.type == DType::kF8_E8M0;
  return is_weight_type(tensor.type);
}

void read_row(const StoredTensor& tensor, uint64_t row, float* target) {
  const size_t columns = columns_of(tensor);
  if (tensor.type == DType::kF4_E2M1) {
    std::vector<uint8_t> blocks(stored_row_bytes(tensor));
    dequantize_row(DType::kMXFP4, stored_row(tensor, row, blocks.data()), target, columns);
    return;
  }
  dequantize_row(tensor.type, row_in_file(tensor, row), target, columns);
  if (tensor.scales.empty()) return;
  size_t count = 0;
  const uint8_t* bytes = scales_of_row(tensor, row, count);
  std::vector<float> scales(count);
  dequantize_row(tensor.scales.type, bytes, scales.data(), count);
  for (size_t i = 0; i < columns; ++i) target[i] *= scales[i / tensor.scales.block_columns];
}

void fetch_row(const TensorSource& source, const StoredTensor& tensor, uint64_t row,
               float* target) {
  const MappedFile* const file = source.file_of(tensor);
  const bool as_it_is = tensor.type != DType::kF4_E2M1 && tensor.scales.empty();
  if (file != nullptr && as_it_is) {
    const size_t bytes = row_bytes(tensor.type, columns_of(tensor));
    CHECK((row + 1) * bytes <= tensor.bytes.size());
    std::vector<uint8_t> stored(bytes);
    if (file->read(TensorSource::offset_in(*file, tensor) + row * bytes, stored)) {
      return dequantize_row(tensor.type, stored.data(), target, columns_of(tensor));
    }
  }
  read_row(tensor, row, target);
}

DType stored_row_type(const StoredTensor& tensor) {
  if (tensor.type == DType::kF4_E2M1) return DType::kMXFP4;
  if (tensor.type == DType::kF8_E4M3) return DType::kF16;
  return tensor.type;
}

size_t stored_row_bytes(const StoredTensor& tensor) {
  return row_bytes(stored_row_type(tensor), columns_of(tensor));
}

const uint8_t* stored_row(const StoredTensor& tensor, uint64_t row, uint8_t* scratch) {
  const size_t columns = columns_of(tensor);
  if (tensor.type == DType::kF4_E2M1) {
    size_t groups = 0;
    const uint8_t* scales = scales_of_row(tensor, row, groups);
    CHECK(tensor.scales.block_rows == 1);
    CHECK(groups == columns / kFp4Group);
    fp4_to_mxfp4(row_in_file(tensor, row), scales, groups, scratch);
    return scratch;
  }
  if (tensor.type == DType::kF8_E4M3) {
    std::vector<float> values(columns);
    read_row(tensor, row, values.data());
    for (size_t i = 0; i < columns; ++i) {
      const uint16_t half = float_to_half(values[i]);
      std::memcpy(scratch + 2 * i, &half, sizeof half);
    }
    return scratch;
  }
  CHECK(tensor.scales.empty());
  return row_in_file(tensor, row);
}

size_t panel_row_elements(const StoredTensor& tensor, bool transposed) {
  CHECK(!transposed || tensor.shape.size() >= 2);
  return transposed ? static_cast<size_t>(tensor.shape[1]) : columns_of(tensor);
}

bool pack_rows(const PanelRows& rows, DType type, uint8_t* panel) {
  const size_t k = panel_row_elements(*rows.tensor, rows.transposed);
  const uint8_t* pointers[kPanelRows];
  std::vector<uint8_t> memory;
  if (type == stored_row_type(*rows.tensor)) {
    fetch_rows(rows, k, memory, pointers);
    return pack_panel(type, pointers, k, panel);
  }
  std::vector<float> floats;
  fetch_floats(rows, k, floats, pointers);
  if (type == DType::kF32) return pack_panel(type, pointers, k, panel);
  const size_t bytes = row_bytes(type, k);
  memory.resize(bytes * kPanelRows);
  bool finite = true;
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    if (pointers[lane] == nullptr) continue;
    uint8_t* row = memory.data() + lane * bytes;
    finite = quantize_row(type, floats.data() + lane * k, row, k) && finite;
    pointers[lane] = row;
  }
  return pack_panel(type, pointers, k, panel) && finite;
}

}  // namespace kvikk
