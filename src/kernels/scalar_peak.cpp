// How fast plain C++ multiplies and adds when nothing has to be loaded: the limits that 'kvikk
// bench' measures the scalar level against. bfloat16 is widened, so its limit is float32's.

#include "kernels/kernels.h"

namespace kvikk::scalar {

void fill_peak(Kernels& kernels);

namespace {

constexpr size_t kSums = 8;

// Sums that do not wait for one another; the operands come from outside, so that nothing can be
// computed ahead.
template <class T>
uint64_t peak(uint64_t iterations, const volatile T& left, const volatile T& right) {
  T sums[kSums] = {};
  for (uint64_t n = 0; n < iterations; ++n) {
    const T a = left;
    const T b = right;
    for (size_t i = 0; i < kSums; ++i) sums[i] = static_cast<T>(a * b + sums[i]);
  }
  volatile T keep{};
  for (size_t i = 0; i < kSums; ++i) keep = sums[i];
  static_cast<void>(keep);
  return iterations * kSums * 2;
}

uint64_t peak_int8(uint64_t iterations) {
  const volatile uint32_t a = 3, b = 5;
  return peak<uint32_t>(iterations, a, b);
}

uint64_t peak_bf16(uint64_t iterations) {
  const volatile float a = 1.0f, b = 0.0078125f;
  return peak<float>(iterations, a, b);
}

}  // namespace

void fill_peak(Kernels& kernels) {
  kernels.peak_int8 = peak_int8;
  kernels.peak_bf16 = peak_bf16;
}

}  // namespace kvikk::scalar
