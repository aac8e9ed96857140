#pragma once
// Scores of a page to softmax weights, for the attention kernels of AVX2.

#include <immintrin.h>

#include "kernels/kernels.h"

namespace kvikk::avx2 {

namespace {

constexpr size_t kLanes = 8;
constexpr size_t kVectors = kPageTokens / kLanes;

// e^x for x <= 0 with a relative error of about 1.5e-7; exactly 1 for 0, exactly 0 below -87; NaN
// stays NaN.
__m256 exp_f32(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.0f);
  const __m256 tiny = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
  x = _mm256_max_ps(lowest, x);
  const __m256 log2e = _mm256_set1_ps(1.4426950216293335f);
  const __m256 whole =
      _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 f = _mm256_fmsub_ps(x, log2e, whole);
  f = _mm256_fmadd_ps(x, _mm256_set1_ps(1.92596298909109e-08f), f);
  // 2^f on [-1/2, 1/2], minimax in relative error with the constant term fixed to 1.
  __m256 p = _mm256_set1_ps(0.001326472731307149f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.009671512991189957f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.05550733581185341f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.24022242426872253f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.6931470036506653f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
  const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  return _mm256_andnot_ps(tiny, _mm256_mul_ps(p, power));
}

// tanh with a relative error of about 1.5e-7; NaN stays NaN.
__m256 tanh_f32(__m256 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 size = _mm256_andnot_ps(sign, x);
  const __m256 square = _mm256_mul_ps(x, x);
  // (tanh(x) / x - 1) / x^2 on [0, 0.64], minimax in relative error of tanh.
  __m256 p = _mm256_set1_ps(-0.005603966303169727f);
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(0.020551782101392746f));
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(-0.05371413379907608f));
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(0.13331152498722076f));
  p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(-0.33333271741867065f));
  const __m256 near_zero = _mm256_fmadd_ps(_mm256_mul_ps(p, square), x, x);
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 e = exp_f32(_mm256_mul_ps(_mm256_set1_ps(-2.0f), size));
  const __m256 far = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
  const __m256 signed_far = _mm256_or_ps(far, _mm256_and_ps(sign, x));
  const __m256 is_near = _mm256_cmp_ps(size, _mm256_set1_ps(0.64f), _CMP_LT_OQ);
  return _mm256_blendv_ps(signed_far, near_zero, is_near);
}

float reduce_max(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

float reduce_add(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// Scores under a soft cap; count is a multiple of 8.
void cap_scores(float* scores, size_t count, float softcap) {
  const __m256 cap = _mm256_set1_ps(softcap);
  const __m256 inverse = _mm256_set1_ps(1.0f / softcap);
  for (size_t i = 0; i < count; i += kLanes) {
    const __m256 score = _mm256_mul_ps(_mm256_loadu_ps(scores + i), inverse);
    _mm256_storeu_ps(scores + i, _mm256_mul_ps(cap, tanh_f32(score)));
  }
}

// The tokens of a page that a row sees: [first, last).
struct Visible {
  int first;
  int last;
};

int page_token(size_t position, size_t absolute) {
  if (absolute <= position) return 0;
  const size_t token = absolute - position;
  return static_cast<int>(token < kPageTokens ? token : kPageTokens);
}

Visible visible_tokens(size_t position, size_t begin, size_t end) {
  return {page_token(position, begin), page_token(position, end)};
}

__m256 visible_mask(Visible visible, size_t vector) {
  const __m256i token = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(vector * kLanes)),
                                         _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
  const __m256i begun = _mm256_cmpgt_epi32(token, _mm256_set1_epi32(visible.first - 1));
  const __m256i before_end = _mm256_cmpgt_epi32(_mm256_set1_epi32(visible.last), token);
  return _mm256_castsi256_ps(_mm256_and_si256(begun, before_end));
}

// Scores of one row to weights. Takes the row's maximum so far and returns the new one; `sum` gets
// the weights' sum by lanes.
float weigh_row(float* weights, Visible visible, float max_before, __m256& sum) {
  if (visible.first > 0 || visible.last < static_cast<int>(kPageTokens)) {
    const __m256 invisible = _mm256_set1_ps(-__builtin_inff());  // weight exactly 0
    for (size_t v = 0; v < kVectors; ++v) {
      const __m256 s = _mm256_loadu_ps(weights + v * kLanes);
      _mm256_storeu_ps(weights + v * kLanes,
                       _mm256_blendv_ps(invisible, s, visible_mask(visible, v)));
    }
  }
  // The maximum so far stays second: a NaN score leaves it alone and shows in the weight.
  __m256 largest = _mm256_set1_ps(max_before);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    largest = _mm256_max_ps(_mm256_loadu_ps(weights + v * kLanes), largest);
  }
  const float max_after = reduce_max(largest);
  const __m256 max = _mm256_set1_ps(max_after);
  __m256 w[kVectors];
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    w[v] = exp_f32(_mm256_sub_ps(_mm256_loadu_ps(weights + v * kLanes), max));
    _mm256_storeu_ps(weights + v * kLanes, w[v]);
  }
  const __m256 low = _mm256_add_ps(_mm256_add_ps(w[0], w[1]), _mm256_add_ps(w[2], w[3]));
  const __m256 high = _mm256_add_ps(_mm256_add_ps(w[4], w[5]), _mm256_add_ps(w[6], w[7]));
  sum = _mm256_add_ps(low, high);
  return max_after;
}

}  // namespace

}  // namespace kvikk::avx2
