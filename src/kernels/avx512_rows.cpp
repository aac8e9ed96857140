// Operations on one activation row or one cached token, for AVX-512. Sums have a fixed tree that
// depends on the length alone; everything else is per element. Where the scalar kernels promise
// exact integers or bytes (quantize_row, store_*) these give the same ones.

#include <immintrin.h>

#include <cmath>

#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_rows(Kernels& kernels);

namespace {

constexpr size_t kLanes = 16;

__mmask16 tail_mask(size_t n) {
  return n >= kLanes ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << n) - 1u);
}

// e^x with a relative error of about 1.5e-7. Above 89 infinity, below -105 zero; NaN stays NaN.
__m512 exp_f32(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-105.0f), _mm512_min_ps(_mm512_set1_ps(89.0f), x));
  const __m512 log2e = _mm512_set1_ps(1.4426950216293335f);
  const __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT);
  __m512 f = _mm512_fmsub_ps(x, log2e, whole);  // the product is exact inside the fused operation
  f = _mm512_fmadd_ps(x, _mm512_set1_ps(1.92596298909109e-08f), f);
  // 2^f on [-1/2, 1/2], minimax in relative error with the constant term fixed to 1.
  __m512 p = _mm512_set1_ps(0.001326472731307149f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.009671512991189957f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05550733581185341f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022242426872253f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931470036506653f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, whole);
}

// x / (1 + e^-z)
__m512 times_sigmoid(__m512 x, __m512 z) {
  const __m512 e = exp_f32(_mm512_sub_ps(_mm512_setzero_ps(), z));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

void quantize_group(const float* x, int8_t* codes, float& scale, int32_t* sums,
                    float& weighted_sum) {
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + kLanes);
  const __m512 low_size = _mm512_abs_ps(low);
  const __m512 high_size = _mm512_abs_ps(high);
  const __m512 limit = _mm512_set1_ps(3.4028234e38f);
  const unsigned finite = _mm512_cmp_ps_mask(low_size, limit, _CMP_LE_OQ) &
                          _mm512_cmp_ps_mask(high_size, limit, _CMP_LE_OQ);
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(low_size, high_size));
  if (finite != 0xffff || largest < kQuantizeSmallest) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_setzero_si256());
    scale = finite == 0xffff ? 0.0f : NAN;
    sums[0] = 0;
    sums[1] = 0;
    weighted_sum = scale;
    return;
  }
  const __m512 inverse = _mm512_set1_ps(127.0f / largest);
  const __m512i top = _mm512_set1_epi32(127);
  const __m512i bottom = _mm512_set1_epi32(-127);
  __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
  __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
  a = _mm512_max_epi32(_mm512_min_epi32(a, top), bottom);
  b = _mm512_max_epi32(_mm512_min_epi32(b, top), bottom);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + kLanes), _mm512_cvtepi32_epi8(b));
  scale = largest / 127.0f;
  sums[0] = _mm512_reduce_add_epi32(a);
  sums[1] = _mm512_reduce_add_epi32(b);
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
  __m512d even = _mm512_setzero_pd();
  __m512d odd = _mm512_setzero_pd();
  for (size_t i = 0; i < n; i += kLanes) {
    const __m512 v = _mm512_maskz_loadu_ps(tail_mask(n - i), x + i);
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    even = _mm512_fmadd_pd(a, a, even);
    odd = _mm512_fmadd_pd(b, b, odd);
  }
  const double mean = _mm512_reduce_add_pd(_mm512_add_pd(even, odd)) / static_cast<double>(n);
  const __m128d root =
      _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(mean + static_cast<double>(epsilon)));
  const __m512 inverse = _mm512_set1_ps(static_cast<float>(1.0 / _mm_cvtsd_f64(root)));
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = tail_mask(n - i);
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, weight + i)));
  }
}

void add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = tail_mask(n - i);
    const __m512 sum =
        _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i));
    _mm512_mask_storeu_ps(x + i, mask, sum);
  }
}

void silu_multiply(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = tail_mask(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 u = _mm512_maskz_loadu_ps(mask, up + i);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(times_sigmoid(g, g), u));
  }
}

void gelu_multiply(const float* gate, const float* up, size_t n, float* out) {
  // g / 2 (1 + tanh(z)) = g / (1 + e^(-2 z)): no cancellation where tanh is near -1.
  const __m512 linear = _mm512_set1_ps(2.0f * 0.7978845608028654f);
  const __m512 cubic = _mm512_set1_ps(2.0f * 0.7978845608028654f * 0.044715f);
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = tail_mask(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 u = _mm512_maskz_loadu_ps(mask, up + i);
    const __m512 slope = _mm512_fmadd_ps(_mm512_mul_ps(g, g), cubic, linear);
    const __m512 y = times_sigmoid(g, _mm512_mul_ps(g, slope));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(y, u));
  }
}

void rope_halves(float* head, const float* cosines, const float* sines, size_t rotary) {
  const size_t half = rotary / 2;
  for (size_t i = 0; i < half; i += kLanes) {
    const __mmask16 mask = tail_mask(half - i);
    const __m512 a = _mm512_maskz_loadu_ps(mask, head + i);
    const __m512 b = _mm512_maskz_loadu_ps(mask, head + half + i);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cosines + i);
    const __m512 s = _mm512_maskz_loadu_ps(mask, sines + i);
    const __m512 rotated_a = _mm512_sub_ps(_mm512_mul_ps(a, c), _mm512_mul_ps(b, s));
    const __m512 rotated_b = _mm512_add_ps(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s));
    _mm512_mask_storeu_ps(head + i, mask, rotated_a);
    _mm512_mask_storeu_ps(head + half + i, mask, rotated_b);
  }
}

void rope_pairs(float* head, const float* cosines, const float* sines, size_t rotary) {
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  for (size_t i = 0; i < rotary; i += kLanes) {
    const __mmask16 mask = tail_mask(rotary - i);
    const __mmask16 half_mask = tail_mask((rotary - i) / 2) & 0xff;
    const __m512 x = _mm512_maskz_loadu_ps(mask, head + i);
    const __m512 swapped = _mm512_permute_ps(x, 0xb1);
    const __m512 c =
        _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(half_mask, cosines + i / 2));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(half_mask, sines + i / 2));
    const __m512 straight = _mm512_mul_ps(x, c);
    const __m512 crossed = _mm512_mul_ps(swapped, s);
    const __m512 sum = _mm512_add_ps(straight, crossed);
    _mm512_mask_storeu_ps(head + i, mask, _mm512_mask_sub_ps(sum, 0x5555, straight, crossed));
  }
}

// The bfloat16 nearest to each float, ties to even, in the low half of each lane. In integers,
// because vcvtneps2bf16 turns denormals into zero and the reference does not.
__m512i to_bfloat16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i rounded = _mm512_srli_epi32(up, 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
}

// Byte offsets of 16 lines, one after the other.
__m512i line_offsets() {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_slli_epi32(lane, 6);
}

void store_key_bf16(uint8_t* keys, size_t slot, const float* key, size_t dim) {
  keys += slot / 16 * 32 * dim + slot % 16 * 4;
  const __m512i lines = line_offsets();  // a line holds a pair of dims
  for (size_t d = 0; d < dim; d += kLanes) {
    const __m256i k = _mm512_cvtepi32_epi16(to_bfloat16(_mm512_loadu_ps(key + d)));
    _mm512_mask_i32scatter_epi32(keys + d * 32, 0xff, lines, _mm512_castsi256_si512(k), 1);
  }
}

void store_value_bf16(uint8_t* values, size_t slot, const float* value, size_t dim) {
  values += slot / 2 * 4 * dim;
  // Only this token's halves are written: another thread may be storing the other one.
  const __mmask32 halves = slot % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  for (size_t d = 0; d < dim; d += kLanes) {
    const __m512i v = to_bfloat16(_mm512_loadu_ps(value + d));
    const __m512i placed = slot % 2 == 0 ? v : _mm512_slli_epi32(v, 16);
    _mm512_mask_storeu_epi16(values + d * 4, halves, placed);
  }
}

void store_key_f32(uint8_t* keys, size_t slot, const float* key, size_t dim) {
  keys += slot / 16 * 64 * dim + slot % 16 * 4;
  const __m512i lines = line_offsets();
  for (size_t d = 0; d < dim; d += kLanes) {
    _mm512_i32scatter_ps(keys + d * 64, lines, _mm512_loadu_ps(key + d), 1);
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
  kernels.store_key[static_cast<size_t>(KvFormat::kF32)] = store_key_f32;
  // Float32 values: the scalar store is a copy.
}

}  // namespace kvikk::avx512
