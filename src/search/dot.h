#pragma once
// Sums of products of floats, in double.

#include <cstddef>

namespace kvikk {

// a, b: [n]. Eight sums that are added up at the end, in an order that n alone determines: one sum
// would wait for each addition.
inline double double_dot(const float* a, const float* b, size_t n) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t s = 0; s < kSums; ++s) sums[s] += static_cast<double>(a[i + s]) * b[i + s];
  }
  for (; i < n; ++i) sums[i % kSums] += static_cast<double>(a[i]) * b[i];
  for (size_t half = kSums / 2; half > 0; half /= 2) {
    for (size_t s = 0; s < half; ++s) sums[s] += sums[s + half];
  }
  return sums[0];
}

}  // namespace kvikk
