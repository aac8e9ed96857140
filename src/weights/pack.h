#pragma once
// Repacks the rows of a tensor, as the file stores them, into the panels that kernels read
// (panels.h). The same integers and the same scales, in another order: nothing is rounded, except
// in the types that have no panel format of their own (transcode.h says what that costs).

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/panels.h"
#include "tensor/dtype.h"

namespace kvikk {

// The panel format that holds `type`.
PanelFormat panel_format_of(DType type);

// Packs 16 rows of k elements into one panel of panel_format_of(type). rows[i] = nullptr is a row
// of zeros (the padding of the last panel). Returns false if a scale or a float weight is not
// finite.
[[nodiscard]] bool pack_panel(DType type, const uint8_t* const* rows, size_t k, uint8_t* panel);

// Packs 16 rows as float32, dequantized: what --exact computes with.
[[nodiscard]] bool pack_panel_f32(DType type, const uint8_t* const* rows, size_t k, uint8_t* panel);

}  // namespace kvikk
