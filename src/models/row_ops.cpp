#include "models/row_ops.h"

#include <cmath>
#include <cstring>

#include "base/check.h"

namespace kvikk {

namespace {

void layer_norm(const float* x, const float* weight, const float* bias, size_t n, float epsilon,
                float* out) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(n);
  double squares = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares += d * d;
  }
  const double variance = squares / static_cast<double>(n);
  const double inverse = 1.0 / std::sqrt(variance + static_cast<double>(epsilon));
  for (size_t i = 0; i < n; ++i) {
    const float normal = static_cast<float>((static_cast<double>(x[i]) - mean) * inverse);
    out[i] = normal * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
  }
}

// x / 2 (1 + erf(x / sqrt 2))
void gelu_multiply(const float* gate, const float* up, size_t n, float* out) {
  constexpr float kInverseSqrt2 = 0.7071067811865476f;
  for (size_t i = 0; i < n; ++i) {
    out[i] = 0.5f * gate[i] * std::erfc(-gate[i] * kInverseSqrt2) * up[i];
  }
}

void relu2_multiply(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const float positive = gate[i] < 0.0f ? 0.0f : gate[i];  // a NaN stays one
    out[i] = positive * positive * up[i];
  }
}

}  // namespace

void normalize(const Kernels& kernels, const ModelConfig& config, const NormWeights& norm,
               const float* x, size_t n, float* out, size_t weight_at) {
  if (norm.empty()) {
    if (out != x) std::memcpy(out, x, n * sizeof(float));
    return;
  }
  CHECK(weight_at + n <= norm.weight.size());
  const float* weight = norm.weight.data() + weight_at;
  if (config.norm == NormKind::kRms) {
    kernels.rms_norm(x, weight, n, config.norm_epsilon, out);
    return;
  }
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data() + weight_at;
  layer_norm(x, weight, bias, n, config.norm_epsilon, out);
}

void activate_multiply(const Kernels& kernels, Activation activation, const float* gate,
                       const float* up, size_t n, float* out) {
  switch (activation) {
    case Activation::kSilu:
      kernels.silu_multiply(gate, up, n, out);
      return;
    case Activation::kGeluTanh:
      kernels.gelu_multiply(gate, up, n, out);
      return;
    case Activation::kGelu:
      gelu_multiply(gate, up, n, out);
      return;
    case Activation::kRelu2:
      relu2_multiply(gate, up, n, out);
      return;
  }
}

void scale_row(float factor, size_t n, float* x) {
  if (factor == 1.0f) return;
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace kvikk
