// How fast AVX2 multiplies and adds when nothing has to be loaded: the limits that 'kvikk bench'
// measures itself against. There is no bfloat16 product at this level: widened numbers go through
// the float32 units, so their rate is the limit. An int8 product takes three instructions.

#include <immintrin.h>

#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_peak(Kernels& kernels);

namespace {

constexpr size_t kSums = 10;

// Hides where a value comes from, so that the compiler cannot foresee it.
template <class T>
inline void hide(T& value) {
  asm volatile("" : "+x"(value));
}

uint64_t peak_int8(uint64_t iterations) {
  __m256i sums[kSums];
#pragma GCC unroll 10
  for (size_t i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  __m256i b = _mm256_set1_epi8(-2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 10
    for (size_t i = 0; i < kSums; ++i) {
      hide(a);
      hide(b);
      const __m256i pairs = _mm256_maddubs_epi16(a, b);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
#pragma GCC unroll 10
  for (size_t i = 0; i < kSums; ++i) hide(sums[i]);
  return iterations * kSums * 32 * 2;
}

uint64_t peak_bf16(uint64_t iterations) {
  __m256 sums[kSums];
#pragma GCC unroll 10
  for (size_t i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_ps();
  __m256 a = _mm256_set1_ps(1.0f);
  __m256 b = _mm256_set1_ps(0.0078125f);
  for (uint64_t n = 0; n < iterations; ++n) {
    hide(a);
    hide(b);
#pragma GCC unroll 10
    for (size_t i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(a, b, sums[i]);
  }
#pragma GCC unroll 10
  for (size_t i = 0; i < kSums; ++i) hide(sums[i]);
  return iterations * kSums * 8 * 2;
}

}  // namespace

void fill_peak(Kernels& kernels) {
  kernels.peak_int8 = peak_int8;
  kernels.peak_bf16 = peak_bf16;
}

}  // namespace kvikk::avx2
