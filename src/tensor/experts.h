#pragma once
// A mixture of experts: each row of activations goes through a few small gated MLPs of its own
// choice. Rows are gathered by expert, so that each expert's matrices are read once and run as one
// product over its rows; experts that nobody chose are not read at all.
//
//   y[row] = sum over the row's choices, in their order, of
//            weight * (Wdown act(Wgate x + bgate, Wup x + bup) + bdown)
//
// A row's result depends on its own activations and choices alone, bit for bit: every product is
// row-invariant and the sum runs in the order of the choices, never in that of the gathering.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "tensor/matrix.h"

namespace kvikk {

struct Expert {
  Matrix gate, up;                                   // [width, hidden]
  Matrix down;                                       // [hidden, width]
  std::vector<float> gate_bias, up_bias, down_bias;  // [width], [width], [hidden], or empty
};

struct ExpertChoice {
  uint32_t expert = 0;
  float weight = 0.0f;
};

// out = act(gate, up), n elements. out may be gate.
using GatedActivation =
    std::function<void(const float* gate, const float* up, size_t n, float* out)>;

struct ExpertShape {
  size_t experts = 0;
  size_t chosen = 0;  // experts a row
  size_t hidden = 0;
  size_t width = 0;  // inner size of an expert
};

// The workspace of such layers; one serves all layers of a shape.
class ExpertMixture {
 public:
  static Result<ExpertMixture> create(const ExpertShape& shape, size_t rows_max);

  struct Call {
    std::span<const Expert> experts;        // [shape.experts]
    std::span<const ExpertChoice> choices;  // [rows, shape.chosen]
    const float* x = nullptr;               // [rows, x_stride]
    size_t x_stride = 0;
    const GatedActivation* activation = nullptr;
    float* y = nullptr;  // [rows, y_stride], overwritten
    size_t y_stride = 0;
  };
  void run(Compute& compute, const Call& call);

 private:
  // Rows of one expert: slots first .. first + rows - 1 of the buffers.
  struct Group {
    uint32_t expert;
    size_t first;  // a multiple of 16, so that quantized rows lie as kernels want them
    size_t rows;
  };

  void group_choices(std::span<const ExpertChoice> choices);
  void gather(Compute& compute, const Call& call);
  void activate(Compute& compute, const Call& call);
  void combine(Compute& compute, const Call& call);
  // y = x W^T for every group and each of `matrices`; outputs to the buffers of the same order.
  void multiply(Compute& compute, const Call& call, const Activations& x,
                std::span<Matrix Expert::*const> matrices, std::span<float* const> outputs,
                size_t stride);

  ExpertShape shape_;
  std::vector<Group> groups_;  // of this call, by expert
  std::vector<uint32_t> group_of_slot_;
  std::vector<uint32_t> slot_of_choice_;
  std::vector<size_t> counts_;      // [experts]
  std::vector<size_t> first_task_;  // [groups x matrices + 1]
  Activations in_;                  // [slots, hidden]
  Activations inner_;               // [slots, width]
  Buffer gate_, up_;                // [slots, width padded to 16]
  Buffer out_;                      // [slots, hidden padded to 16]
};

}  // namespace kvikk
