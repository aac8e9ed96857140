// The reference kernels: plain C++ for any processor, written for clarity. Every other level is
// tested against these.

#include <cmath>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/kernels.h"

namespace kvikk::scalar {

// In scalar_matmul.cpp, scalar_attend.cpp and scalar_peak.cpp.
void fill_matmul(Kernels& kernels);
void fill_attend(Kernels& kernels);
void fill_coded(Kernels& kernels);  // scalar_coded.cpp
void fill_peak(Kernels& kernels);
void fill_search(Kernels& kernels);  // scalar_search.cpp

namespace {

void quantize_row(const float* x, size_t row, const QuantizedRows& out) {
  const size_t block = row / kRowBlock * kRowBlock;
  const size_t block_rows = out.rows - block < kRowBlock ? out.rows - block : kRowBlock;
  const size_t r = row - block;
  for (size_t g = 0; g < out.groups; ++g) {
    const float* group = x + g * kGroup;
    const size_t at = block * out.groups + g * block_rows + r;
    int8_t* codes = out.codes + at * kGroup;
    float largest = 0.0f;
    bool finite = true;
    for (size_t k = 0; k < kGroup; ++k) {
      const float magnitude = std::fabs(group[k]);
      finite = finite && magnitude <= 3.4028234e38f;  // false for NaN and infinity
      largest = magnitude > largest ? magnitude : largest;
    }
    const bool nonzero = finite && largest >= kQuantizeSmallest;
    const float scale = nonzero ? largest / 127.0f : finite ? 0.0f : NAN;
    const float inverse = nonzero ? 127.0f / largest : 0.0f;
    int32_t sums[2] = {0, 0};
    for (size_t k = 0; k < kGroup; ++k) {
      const float code = nonzero ? std::nearbyintf(group[k] * inverse) : 0.0f;
      codes[k] = static_cast<int8_t>(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
      sums[k / 16] += codes[k];
    }
    out.scales[at] = scale;
    out.sums[2 * at] = sums[0];
    out.sums[2 * at + 1] = sums[1];
    out.weighted_sums[at] = scale * static_cast<float>(sums[0] + sums[1]);
  }
}

void rms_norm(const float* x, const float* weight, size_t n, float epsilon, float* out) {
  double squares = 0.0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double mean = squares / static_cast<double>(n);
  const float inverse = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] += y[i];
}

void silu_multiply(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void gelu_multiply(const float* gate, const float* up, size_t n, float* out) {
  // g / 2 (1 + tanh(z)) = g / (1 + e^(-2 z)): no cancellation where tanh is near -1.
  constexpr float kSqrt2OverPi = 0.7978845608028654f;
  for (size_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const float inner = kSqrt2OverPi * (g + 0.044715f * g * g * g);
    out[i] = g / (1.0f + std::exp(-2.0f * inner)) * up[i];
  }
}

void rope_halves(float* head, const float* cosines, const float* sines, size_t rotary) {
  const size_t half = rotary / 2;
  for (size_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

void rope_pairs(float* head, const float* cosines, const float* sines, size_t rotary) {
  for (size_t i = 0; i < rotary / 2; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace

void fill(Kernels& kernels) {
  kernels.level = "scalar";
  kernels.quantize_row = quantize_row;
  kernels.rms_norm = rms_norm;
  kernels.add = add;
  kernels.silu_multiply = silu_multiply;
  kernels.gelu_multiply = gelu_multiply;
  kernels.rope[static_cast<size_t>(RopeStyle::kHalves)] = rope_halves;
  kernels.rope[static_cast<size_t>(RopeStyle::kPairs)] = rope_pairs;
  fill_matmul(kernels);
  fill_attend(kernels);
  fill_coded(kernels);
  fill_peak(kernels);
  fill_search(kernels);
}

}  // namespace kvikk::scalar
