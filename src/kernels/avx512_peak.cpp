// How fast AVX-512 multiplies and adds when nothing has to be loaded: the limits that 'kvikk bench'
// measures itself against. Twelve sums that do not wait for one another keep both units busy.

#include <immintrin.h>

#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_peak(Kernels& kernels);

namespace {

constexpr size_t kSums = 12;

// Hides where a value comes from, so that the compiler cannot foresee it.
template <class T>
inline void hide(T& value) {
  asm volatile("" : "+v"(value));
}

uint64_t peak_int8(uint64_t iterations) {
  __m512i sums[kSums];
#pragma GCC unroll 12
  for (size_t i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3);
  __m512i b = _mm512_set1_epi8(-2);
  for (uint64_t n = 0; n < iterations; ++n) {
    hide(a);
    hide(b);
#pragma GCC unroll 12
    for (size_t i = 0; i < kSums; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
#pragma GCC unroll 12
  for (size_t i = 0; i < kSums; ++i) hide(sums[i]);
  return iterations * kSums * 64 * 2;
}

uint64_t peak_bf16(uint64_t iterations) {
  __m512 sums[kSums];
#pragma GCC unroll 12
  for (size_t i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_ps();
  __m512i a = _mm512_set1_epi16(0x3f80);  // 1
  __m512i b = _mm512_set1_epi16(0x3c00);
  for (uint64_t n = 0; n < iterations; ++n) {
    hide(a);
    hide(b);
#pragma GCC unroll 12
    for (size_t i = 0; i < kSums; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)a, (__m512bh)b);
    }
  }
#pragma GCC unroll 12
  for (size_t i = 0; i < kSums; ++i) hide(sums[i]);
  return iterations * kSums * 32 * 2;
}

}  // namespace

void fill_peak(Kernels& kernels) {
  kernels.peak_int8 = peak_int8;
  kernels.peak_bf16 = peak_bf16;
}

}  // namespace kvikk::avx512
