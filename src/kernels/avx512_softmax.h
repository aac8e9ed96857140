#pragma once
// Scores of a page to softmax weights, for the attention kernels of AVX-512 and AMX.

#include <immintrin.h>

#include "kernels/kernels.h"

namespace kvikk::avx512 {

void attend_bf16(const AttendArgs& args);  // avx512_attend.cpp

namespace {

constexpr size_t kLanes = 16;

// e^x for x <= 0 with a relative error of about 1.5e-7 + 1.5e-8 |x|; exactly 1 for 0, exactly 0
// below -110; NaN stays NaN.
__m512 exp_f32(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);
  const __m512 log2e = _mm512_set1_ps(1.4426950216293335f);
  const __m512 magic = _mm512_set1_ps(12582912.0f);  // 1.5 x 2^23: adding it rounds to an integer
  const __m512 whole = _mm512_sub_ps(_mm512_fmadd_ps(x, log2e, magic), magic);
  const __m512 f = _mm512_fmsub_ps(x, log2e, whole);
  // 2^f on [-1/2, 1/2], minimax in relative error with the constant term fixed to 1.
  __m512 p = _mm512_set1_ps(0.001326472731307149f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.009671512991189957f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05550733581185341f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022242426872253f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931470036506653f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, whole);
}

// tanh with a relative error of about 1.5e-7; NaN stays NaN.
__m512 tanh_f32(__m512 x) {
  const __m512 size = _mm512_abs_ps(x);
  const __m512 square = _mm512_mul_ps(x, x);
  // (tanh(x) / x - 1) / x^2 on [0, 0.64], minimax in relative error of tanh.
  __m512 p = _mm512_set1_ps(-0.005603966303169727f);
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(0.020551782101392746f));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(-0.05371413379907608f));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(0.13331152498722076f));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(-0.33333271741867065f));
  const __m512 near_zero = _mm512_fmadd_ps(_mm512_mul_ps(p, square), x, x);
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp_f32(_mm512_mul_ps(_mm512_set1_ps(-2.0f), size));
  const __m512 far = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
  const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
  const __m512 signed_far = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(far), sign));
  const __mmask16 is_near = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.64f), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(signed_far, is_near, near_zero);
}

// Scores under a soft cap; count is a multiple of 16.
void cap_scores(float* scores, size_t count, float softcap) {
  const __m512 cap = _mm512_set1_ps(softcap);
  const __m512 inverse = _mm512_set1_ps(1.0f / softcap);
  for (size_t i = 0; i < count; i += kLanes) {
    const __m512 score = _mm512_mul_ps(_mm512_loadu_ps(scores + i), inverse);
    _mm512_storeu_ps(scores + i, _mm512_mul_ps(cap, tanh_f32(score)));
  }
}

// Bit t: the row sees token t of the page.
uint64_t visible_tokens(size_t position, size_t begin, size_t end) {
  const size_t first = begin > position ? begin - position : 0;
  const size_t last = end > position ? end - position : 0;
  if (first >= kPageTokens || first >= last) return 0;
  const uint64_t from_first = ~uint64_t{0} << first;
  return last >= kPageTokens ? from_first : from_first & ~(~uint64_t{0} << last);
}

// The largest lane in every lane.
__m512 max_of_lanes(__m512 v) {
  v = _mm512_max_ps(v, _mm512_shuffle_f32x4(v, v, 0x4e));
  v = _mm512_max_ps(v, _mm512_shuffle_f32x4(v, v, 0xb1));
  v = _mm512_max_ps(v, _mm512_permute_ps(v, 0x4e));
  return _mm512_max_ps(v, _mm512_permute_ps(v, 0xb1));
}

// Scores of one row to weights. Takes the row's maximum so far, in every lane, and returns the new
// one; `sum` gets the weights' sum by lanes.
__m512 weigh_row(float* weights, uint64_t visible, __m512 max, __m512& sum) {
  __m512 s[4];
#pragma GCC unroll 4
  for (size_t b = 0; b < 4; ++b) s[b] = _mm512_loadu_ps(weights + b * kLanes);
  if (visible != ~uint64_t{0}) {
    const __m512 invisible = _mm512_set1_ps(-__builtin_inff());  // weight exactly 0
#pragma GCC unroll 4
    for (size_t b = 0; b < 4; ++b) {
      const __mmask16 mask = static_cast<__mmask16>(visible >> (b * kLanes));
      s[b] = _mm512_mask_mov_ps(invisible, mask, s[b]);
    }
  }
  // The maximum so far stays second: a NaN score leaves it alone and shows in the weight.
  const __m512 low = _mm512_max_ps(s[1], _mm512_max_ps(s[0], max));
  const __m512 high = _mm512_max_ps(s[3], _mm512_max_ps(s[2], max));
  max = max_of_lanes(_mm512_max_ps(low, high));
#pragma GCC unroll 4
  for (size_t b = 0; b < 4; ++b) {
    s[b] = exp_f32(_mm512_sub_ps(s[b], max));
    _mm512_storeu_ps(weights + b * kLanes, s[b]);
  }
  sum = _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3]));
  return max;
}

// The softmax of some rows, page after page.
struct RunningSoftmax {
  size_t rows;
  size_t position;        // of the page's first token
  const uint32_t* begin;  // [rows]
  const uint32_t* end;    // [rows]
  float* max;             // [rows]
  float* sums;            // [rows][16 lanes]
  float* rescale;         // [16]: what the page's maximum does to the sums so far
};

// Scores of a page [rows][64] to weights, of up to kRows rows; updates maximum and sums; sets
// rescale.
template <size_t kRows>
void weigh_rows(const RunningSoftmax& s, float* weights) {
  static_assert(kRows <= kLanes);
  const __mmask16 rows = static_cast<__mmask16>((1u << s.rows) - 1u);
  const __m512 old_max = _mm512_maskz_loadu_ps(rows, s.max);
  __m512 new_max = old_max;
  __m512 added[kRows];
  for (size_t r = 0; r < s.rows; ++r) {
    const uint64_t visible = visible_tokens(s.position, s.begin[r], s.end[r]);
    const __m512 max =
        weigh_row(weights + r * kPageTokens, visible, _mm512_set1_ps(s.max[r]), added[r]);
    new_max = _mm512_mask_mov_ps(new_max, static_cast<__mmask16>(1u << r), max);
  }
  _mm512_mask_storeu_ps(s.max, rows, new_max);
  _mm512_storeu_ps(s.rescale, exp_f32(_mm512_sub_ps(old_max, new_max)));
  for (size_t r = 0; r < s.rows; ++r) {
    float* sums = s.sums + r * kLanes;
    const __m512 rescale = _mm512_set1_ps(s.rescale[r]);
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), rescale, added[r]));
  }
}

inline uint32_t smallest(const uint32_t* values, size_t count) {
  uint32_t result = values[0];
  for (size_t i = 1; i < count; ++i) result = values[i] < result ? values[i] : result;
  return result;
}

}  // namespace

}  // namespace kvikk::avx512
