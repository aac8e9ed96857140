#pragma once
// Values out of the keys of a bfloat16 page, for the attention kernels of AVX-512 and AMX: where
// all heads share a latent, a page holds it once, as keys.

#include <immintrin.h>

#include "kernels/kernels.h"

namespace kvikk::avx512 {

namespace {

// 16 dims of 16 tokens: lines of [16 tokens][2 dims] become lines of [16 dims][2 tokens], `stride`
// bytes apart.
void take_square(const uint8_t* lines, uint8_t* out, size_t stride) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i half = _mm512_srli_epi32(lane, 1);  // the pair of dims: its line
  const __mmask16 odd = 0xaaaa;
  for (size_t pair = 0; pair < 8; ++pair) {
    // Of each line the two tokens of the pair: u32 [even token, odd token] by pairs of dims.
    const __m512i at = _mm512_slli_epi32(half, 6);
    const __m512i offset = _mm512_set1_epi32(static_cast<int>(pair * 8));
    const __m512i index = _mm512_add_epi32(at, offset);
    const __m512i even_token = _mm512_i32gather_epi32(index, lines, 1);
    const __m512i odd_token = _mm512_i32gather_epi32(index, lines + 4, 1);
    // Lane d: dim d of both tokens; even dims are low halves, odd dims high ones.
    const __m512i low = _mm512_set1_epi32(0xffff);
    const __m512i even_dims =
        _mm512_or_si512(_mm512_and_si512(even_token, low), _mm512_slli_epi32(odd_token, 16));
    const __m512i odd_dims =
        _mm512_or_si512(_mm512_srli_epi32(even_token, 16), _mm512_andnot_si512(low, odd_token));
    _mm512_storeu_si512(out + pair * stride, _mm512_mask_mov_epi32(even_dims, odd, odd_dims));
  }
}

// The first value_dim dims of the keys, laid out as values.
void take_bf16_values(const uint8_t* keys, size_t key_dim, size_t value_dim, uint8_t* values) {
  const size_t stride = value_dim / 16 * 64;  // from one pair of tokens to the next
  for (size_t block = 0; block < kPageTokens / 16; ++block) {
    for (size_t d = 0; d < value_dim; d += 16) {
      // A line holds [16 tokens][2 dims], 8 lines 16 dims; wanted is [16 dims][2 tokens] for 8
      // pairs of tokens: transpose pairs of dims by pairs of tokens, then the 2 x 2 in each.
      const uint8_t* lines = keys + block * key_dim * 32 + d * 32;
      uint8_t* out = values + block * 8 * stride + d / 16 * 64;
      take_square(lines, out, stride);
    }
  }
}

}  // namespace

}  // namespace kvikk::avx512
