#pragma once
// Rows of a stored tensor, whatever its format: scales of another tensor taken in, FP4 pairs put
// together, transposed matrices turned, float weights quantized on the way. A tensor of more than
// two dimensions is a stack of matrices; its rows count through all of them.

#include <cstddef>
#include <cstdint>

#include "kernels/panels.h"
#include "weights/tensor_source.h"

namespace kvikk {

// Whether the functions below can read it: its type can be a weight's, and scales that the type
// needs are there.
bool is_readable(const StoredTensor& tensor);

// Row `row` as float32: target [shape[0]]. Exact, but for one rounding of value * scale.
void read_row(const StoredTensor& tensor, uint64_t row, float* target);

// The same for a row that is wanted now and then for as long as the model lives (an embedding): its
// bytes are copied from the file, so that no part of the tensor stays mapped.
void fetch_row(const TensorSource& source, const StoredTensor& tensor, uint64_t row, float* target);

// The type in which stored_row gives a row. The tensor's own, but
//   F8_E4M3 with scales -> F16: value * scale has more bits than that; rounded to 11 of them
//   F4_E2M1             -> MXFP4, exactly
DType stored_row_type(const StoredTensor& tensor);
size_t stored_row_bytes(const StoredTensor& tensor);

// Row `row` as blocks of stored_row_type: in the file if they are there as they are, else written
// to `scratch` [stored_row_bytes].
const uint8_t* stored_row(const StoredTensor& tensor, uint64_t row, uint8_t* scratch);

// Sixteen rows for one panel.
struct PanelRows {
  const StoredTensor* tensor = nullptr;
  // gpt_oss stores its experts as [expert, inputs, outputs]: with `transposed`, which is for F32,
  // F16 and BF16, row r is output r % outputs of expert r / outputs and has `inputs` elements.
  bool transposed = false;
  int64_t rows[kPanelRows];  // -1: a row of zeros (the padding of the last panel)
};

// Elements of a row: K of the matrix.
size_t panel_row_elements(const StoredTensor& tensor, bool transposed);

// Packs the rows as `type` into a panel of panel_format_of(type). `type` is one of
//   stored_row_type(tensor)  as they are
//   kF32                     decoded, for exact arithmetic
//   kQ8_0, kQ4_0, kQ4_K      float weights quantized (block_quantizer.h says which sizes can be)
// Returns false if a scale or a weight is not finite.
[[nodiscard]] bool pack_rows(const PanelRows& rows, DType type, uint8_t* panel);

}  // namespace kvikk
