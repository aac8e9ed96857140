// Operations on one activation row or one cached token, for AVX2 with FMA. Sums have a fixed tree
// that depends on the length alone; everything else is per element. Where the scalar kernels
// promise exact integers or bytes (quantize_row, store_*) these give the same ones.

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_rows(Kernels& kernels);

namespace {

constexpr size_t kLanes = 8;

// Lanes that exist when n are left.
__m256i tail_mask(size_t n) {
  const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
  const int left = n < kLanes ? static_cast<int>(n) : static_cast<int>(kLanes);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), lane);
}

__m256 load_tail(const float* x, size_t n) {
  return n >= kLanes ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, tail_mask(n));
}

void store_tail(float* x, size_t n, __m256 v) {
  if (n >= kLanes) {
    _mm256_storeu_ps(x, v);
  } else {
    _mm256_maskstore_ps(x, tail_mask(n), v);
  }
}

__m256 power_of_two(__m256i exponent) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
}

// e^x with a relative error of about 1.5e-7. Above 89 infinity, below -105 zero; NaN stays NaN.
__m256 exp_f32(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-105.0f), _mm256_min_ps(_mm256_set1_ps(89.0f), x));
  const __m256 log2e = _mm256_set1_ps(1.4426950216293335f);
  const __m256 whole =
      _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 f = _mm256_fmsub_ps(x, log2e, whole);  // the product is exact inside the fused operation
  f = _mm256_fmadd_ps(x, _mm256_set1_ps(1.92596298909109e-08f), f);
  // 2^f on [-1/2, 1/2], minimax in relative error with the constant term fixed to 1.
  __m256 p = _mm256_set1_ps(0.001326472731307149f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.009671512991189957f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.05550733581185341f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.24022242426872253f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.6931470036506653f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
  // In two steps: 2^128 and 2^-151 are no floats.
  const __m256i exponent = _mm256_cvtps_epi32(whole);
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  const __m256i rest = _mm256_sub_epi32(exponent, half);
  return _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(half)), power_of_two(rest));
}

// x / (1 + e^-z)
__m256 times_sigmoid(__m256 x, __m256 z) {
  const __m256 e = exp_f32(_mm256_sub_ps(_mm256_setzero_ps(), z));
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

float reduce_max(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

int32_t reduce_add(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// Codes of 16 floats, stored; returns their sum.
int32_t quantize_half(const float* x, __m256 inverse, int8_t* codes) {
  const __m256i top = _mm256_set1_epi32(127);
  const __m256i bottom = _mm256_set1_epi32(-127);
  __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
  __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + kLanes), inverse));
  a = _mm256_max_epi32(_mm256_min_epi32(a, top), bottom);
  b = _mm256_max_epi32(_mm256_min_epi32(b, top), bottom);
  // Packing works within 128-bit halves: the order becomes a0 b0 a1 b1.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), bytes);
  return reduce_add(_mm256_add_epi32(a, b));
}

void quantize_group(const float* x, int8_t* codes, float& scale, int32_t* sums,
                    float& weighted_sum) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 limit = _mm256_set1_ps(3.4028234e38f);
  __m256 largest = _mm256_setzero_ps();
  __m256 finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  for (size_t i = 0; i < kGroup; i += kLanes) {
    const __m256 size = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
    finite = _mm256_and_ps(finite, _mm256_cmp_ps(size, limit, _CMP_LE_OQ));
    largest = _mm256_max_ps(largest, size);
  }
  const float magnitude = reduce_max(largest);
  const bool all_finite = _mm256_movemask_ps(finite) == 0xff;
  if (!all_finite || magnitude < kQuantizeSmallest) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_setzero_si256());
    scale = all_finite ? 0.0f : NAN;
    sums[0] = 0;
    sums[1] = 0;
    weighted_sum = scale;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / magnitude);
  scale = magnitude / 127.0f;
  sums[0] = quantize_half(x, inverse, codes);
  sums[1] = quantize_half(x + 16, inverse, codes + 16);
  weighted_sum = scale * static_cast<float>(sums[0] + sums[1]);
}

void quantize_row(const float* x, size_t row, const QuantizedRows& out) {
  const size_t block = row / kRowBlock * kRowBlock;
  const size_t block_rows = out.rows - block < kRowBlock ? out.rows - block : kRowBlock;
  for (size_t g = 0; g < out.groups; ++g) {
    const size_t at = block * out.groups + g * block_rows + (row - block);
    quantize_group(x + g * kGroup, out.codes + at * kGroup, out.scales[at], out.sums + 2 * at,
                   out.weighted_sums[at]);
  }
}

void rms_norm(const float* x, const float* weight, size_t n, float epsilon, float* out) {
  // Squares are summed in float64, as the reference does: lanes first, then a tree over lanes.
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();
  for (size_t i = 0; i < n; i += kLanes) {
    const __m256 v = load_tail(x + i, n - i);
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  const __m256d lanes = _mm256_add_pd(low, high);
  __m128d sum = _mm_add_pd(_mm256_castpd256_pd128(lanes), _mm256_extractf128_pd(lanes, 1));
  sum = _mm_add_sd(sum, _mm_unpackhi_pd(sum, sum));
  const double mean = _mm_cvtsd_f64(sum) / static_cast<double>(n);
  const __m128d root =
      _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(mean + static_cast<double>(epsilon)));
  const __m256 inverse = _mm256_set1_ps(static_cast<float>(1.0 / _mm_cvtsd_f64(root)));
  for (size_t i = 0; i < n; i += kLanes) {
    const __m256 v = _mm256_mul_ps(load_tail(x + i, n - i), inverse);
    store_tail(out + i, n - i, _mm256_mul_ps(v, load_tail(weight + i, n - i)));
  }
}

void add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    store_tail(x + i, n - i, _mm256_add_ps(load_tail(x + i, n - i), load_tail(y + i, n - i)));
  }
}

void silu_multiply(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; i += kLanes) {
    const __m256 g = load_tail(gate + i, n - i);
    store_tail(out + i, n - i, _mm256_mul_ps(times_sigmoid(g, g), load_tail(up + i, n - i)));
  }
}

void gelu_multiply(const float* gate, const float* up, size_t n, float* out) {
  // g / 2 (1 + tanh(z)) = g / (1 + e^(-2 z)): no cancellation where tanh is near -1.
  const __m256 linear = _mm256_set1_ps(2.0f * 0.7978845608028654f);
  const __m256 cubic = _mm256_set1_ps(2.0f * 0.7978845608028654f * 0.044715f);
  for (size_t i = 0; i < n; i += kLanes) {
    const __m256 g = load_tail(gate + i, n - i);
    const __m256 slope = _mm256_fmadd_ps(_mm256_mul_ps(g, g), cubic, linear);
    const __m256 y = times_sigmoid(g, _mm256_mul_ps(g, slope));
    store_tail(out + i, n - i, _mm256_mul_ps(y, load_tail(up + i, n - i)));
  }
}

void rope_halves(float* head, const float* cosines, const float* sines, size_t rotary) {
  const size_t half = rotary / 2;
  for (size_t i = 0; i < half; i += kLanes) {
    const __m256 a = load_tail(head + i, half - i);
    const __m256 b = load_tail(head + half + i, half - i);
    const __m256 c = load_tail(cosines + i, half - i);
    const __m256 s = load_tail(sines + i, half - i);
    store_tail(head + i, half - i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    store_tail(head + half + i, half - i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
}

void rope_pairs(float* head, const float* cosines, const float* sines, size_t rotary) {
  const __m256i twice = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
  for (size_t i = 0; i < rotary; i += kLanes) {
    const __m128i half_mask = _mm256_castsi256_si128(tail_mask((rotary - i) / 2));
    const __m128 c4 = _mm_maskload_ps(cosines + i / 2, half_mask);
    const __m128 s4 = _mm_maskload_ps(sines + i / 2, half_mask);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(c4), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(s4), twice);
    const __m256 x = load_tail(head + i, rotary - i);
    const __m256 swapped = _mm256_permute_ps(x, 0xb1);
    store_tail(head + i, rotary - i,
               _mm256_addsub_ps(_mm256_mul_ps(x, c), _mm256_mul_ps(swapped, s)));
  }
}

// The bfloat16 nearest to each of 8 floats, ties to even; NaN stays NaN.
void to_bfloat16(const float* x, uint16_t* out) {
  const __m256 v = _mm256_loadu_ps(x);
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i rounded = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, is_nan);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(words));
}

void store_key_bf16(uint8_t* keys, size_t slot, const float* key, size_t dim) {
  keys += slot / 16 * 32 * dim + slot % 16 * 4;
  for (size_t d = 0; d < dim; d += kLanes) {
    uint16_t k[kLanes];
    to_bfloat16(key + d, k);
    for (size_t i = 0; i < kLanes; i += 2) std::memcpy(keys + (d + i) * 32, k + i, 4);
  }
}

void store_value_bf16(uint8_t* values, size_t slot, const float* value, size_t dim) {
  values += slot / 2 * 4 * dim + slot % 2 * 2;
  for (size_t d = 0; d < dim; d += kLanes) {
    uint16_t v[kLanes];
    to_bfloat16(value + d, v);
    for (size_t i = 0; i < kLanes; ++i) std::memcpy(values + (d + i) * 4, v + i, 2);
  }
}

}  // namespace

void fill_rows(Kernels& kernels) {
  kernels.quantize_row = quantize_row;
  kernels.rms_norm = rms_norm;
  kernels.add = add;
  kernels.silu_multiply = silu_multiply;
  kernels.gelu_multiply = gelu_multiply;
  kernels.rope[static_cast<size_t>(RopeStyle::kHalves)] = rope_halves;
  kernels.rope[static_cast<size_t>(RopeStyle::kPairs)] = rope_pairs;
  kernels.store_key[static_cast<size_t>(KvFormat::kBF16)] = store_key_bf16;
  kernels.store_value[static_cast<size_t>(KvFormat::kBF16)] = store_value_bf16;
  // Float32 pages: the scalar stores are as good.
}

}  // namespace kvikk::avx2
