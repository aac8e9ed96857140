#pragma once
// Operations on one row of activations that only some families need, beside those of the kernels:
// plain loops with a fixed order, so that a row's bytes depend on the row alone.

#include <cstddef>
#include <vector>

#include "kernels/kernels.h"
#include "models/config.h"

namespace kvikk {

struct NormWeights {
  std::vector<float> weight;  // [n]; empty: no norm
  std::vector<float> bias;    // [n], or empty

  bool empty() const { return weight.empty(); }
};

// out = norm(x), n elements; without weights out = x. out may be x. `weight_at`: where the weights
// of this row begin (heads with weights of their own).
void normalize(const Kernels& kernels, const ModelConfig& config, const NormWeights& norm,
               const float* x, size_t n, float* out, size_t weight_at = 0);

// out = activation(gate) * up, n elements. out may be gate. Without a gate up is ones [n].
void activate_multiply(const Kernels& kernels, Activation activation, const float* gate,
                       const float* up, size_t n, float* out);

// x += y, if there is a y.
inline void add_vector(const Kernels& kernels, const std::vector<float>& y, float* x) {
  if (!y.empty()) kernels.add(x, y.data(), y.size());
}

void scale_row(float factor, size_t n, float* x);

}  // namespace kvikk
