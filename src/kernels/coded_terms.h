#pragma once
// Position terms of coded attention (coded_page.h), a lane a row: made ready for a page by the
// kernels of AVX2 and AVX-512 alike.

#include <immintrin.h>

#include "kernels/coded_page.h"

namespace kvikk {

namespace {

constexpr size_t kTileRowsMax = 8;

// Floats that gather_terms() writes.
size_t terms_floats_of(const PositionTerm& position) {
  return (2 * (position.fast + position.slow) + 1) * kTileRowsMax;
}

// The terms of a tile's rows: [pair][cosine, sine][kTileRowsMax], then the constants.
void gather_terms(const CodedAttendArgs& args, size_t row, size_t rows, float* out) {
  const size_t pairs = args.position->fast + args.position->slow;
  for (size_t r = 0; r < kTileRowsMax; ++r) {
    const float* from = args.terms + (row + (r < rows ? r : 0)) * args.terms_stride;
    for (size_t p = 0; p < pairs; ++p) {
      out[2 * p * kTileRowsMax + r] = from[1 + p];
      out[(2 * p + 1) * kTileRowsMax + r] = from[1 + args.terms_pairs + p];
    }
    out[2 * pairs * kTileRowsMax + r] = from[0];
  }
}

// Turns the terms to a page: fast pairs as they are, slow ones as the coefficients of one
// polynomial. turned: [fast][cosine, sine][kTileRowsMax], [kPositionPowers][kTileRowsMax].
void turn_terms(const PositionTerm& position, const float* turns, const float* terms,
                float* turned) {
  const size_t pairs = position.fast + position.slow;
  __m256 sums[kPositionPowers];
  sums[0] = _mm256_loadu_ps(terms + 2 * pairs * kTileRowsMax);
#pragma GCC unroll 8
  for (size_t k = 1; k < kPositionPowers; ++k) sums[k] = _mm256_setzero_ps();
  for (size_t p = 0; p < pairs; ++p) {
    const size_t at = position.pairs[p];
    const __m256 a = _mm256_loadu_ps(terms + 2 * p * kTileRowsMax);
    const __m256 b = _mm256_loadu_ps(terms + (2 * p + 1) * kTileRowsMax);
    const __m256 cosine = _mm256_set1_ps(turns[at]);
    const __m256 sine = _mm256_set1_ps(turns[position.table_pairs + at]);
    const __m256 c = _mm256_fmadd_ps(a, cosine, _mm256_mul_ps(b, sine));
    const __m256 s = _mm256_fmsub_ps(b, cosine, _mm256_mul_ps(a, sine));
    if (p < position.fast) {
      _mm256_storeu_ps(turned + 2 * p * kTileRowsMax, c);
      _mm256_storeu_ps(turned + (2 * p + 1) * kTileRowsMax, s);
      continue;
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < kPositionPowers; ++k) {
      const __m256 power = _mm256_set1_ps(position.powers[k * position.table_pairs + at]);
      sums[k] = _mm256_fmadd_ps(k % 2 == 0 ? c : s, power, sums[k]);
    }
  }
  float* polynomial = turned + 2 * position.fast * kTileRowsMax;
#pragma GCC unroll 8
  for (size_t k = 0; k < kPositionPowers; ++k) {
    _mm256_storeu_ps(polynomial + k * kTileRowsMax, sums[k]);
  }
}

}  // namespace

}  // namespace kvikk
