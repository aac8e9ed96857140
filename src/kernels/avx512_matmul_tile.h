#pragma once
// Products of quantized panels with many rows: two panels are unpacked once (avx512_unpack.h) and
// all full blocks of rows run over them, eight rows at a time, with the 2 x 8 sums of a group in
// registers. Gives the same bits as the kernel for few rows, which does the last block.

#include "kernels/avx512_matmul_rows.h"
#include "kernels/avx512_unpack.h"

namespace kvikk::avx512 {

namespace {

constexpr size_t kTileRows = 8;

// What lies in args.scratch.
template <class F, size_t P>
struct TileScratch {
  Unpacked<F, P> w;
  float f[P][kTileRows][kLanes];
};

// f [P][8][16] += P unpacked panels times 8 rows of x, which starts at the first group.
template <class F, size_t P>
void tile_kernel(const Unpacked<F, P>& w, size_t groups, const ActivationRows& x,
                 float (&f)[P][kTileRows][kLanes]) {
  constexpr size_t kDots = kQuads / F::kParts;
  constexpr size_t M = kTileRows;
  const int8_t* codes = x.codes;
  const float* scales = x.scales;
  const int32_t* row_sums = x.sums;
  const float* weighted_sums = x.weighted_sums;
  for (size_t g = 0; g < groups; ++g) {
#pragma GCC unroll 2
    for (size_t h = 0; h < F::kParts; ++h) {
      __m512i sums[P][M];
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) {
        sums[0][r] = dot_start<F>(row_sums + 2 * r, static_cast<int>(h));
        sums[P - 1][r] = sums[0][r];
      }
#pragma GCC unroll 8
      for (size_t j = h * kDots; j < (h + 1) * kDots; ++j) {
        const __m512i q0 = _mm512_load_si512(w.codes[g][0][j]);
        const __m512i q1 = _mm512_load_si512(w.codes[g][P - 1][j]);
#pragma GCC unroll 8
        for (size_t r = 0; r < M; ++r) {
          const __m512i quad =
              _mm512_set1_epi32(*reinterpret_cast<const Quad*>(codes + r * kGroupK + j * 4));
          dot_quad(sums[0][r], q0, quad);
          if (P == 2) dot_quad(sums[P - 1][r], q1, quad);
        }
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) {
        const __m512 scale = _mm512_set1_ps(scales[r]);
#pragma GCC unroll 2
        for (size_t p = 0; p < P; ++p) {
          __m512 value = _mm512_load_ps(f[p][r]);
          value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[p][r]),
                                  _mm512_mul_ps(_mm512_load_ps(w.scales[g][h][p]), scale), value);
          if (F::kHasMin) {
            value = _mm512_fmadd_ps(_mm512_load_ps(w.minimums[g][p]),
                                    _mm512_set1_ps(weighted_sums[r]), value);
          }
          _mm512_store_ps(f[p][r], value);
        }
      }
      asm volatile("" ::: "memory");  // or the compiler holds f in registers and spills the sums
    }
    codes += x.stride * kGroupK;
    scales += x.stride;
    row_sums += 2 * x.stride;
    weighted_sums += x.stride;
  }
}

// 8 rows from `row` on. The sums of the chunks before this one come from y.
template <class F, size_t P>
void tile_rows(const MatmulArgs& args, TileScratch<F, P>& scratch, size_t panel, size_t row,
               size_t group_begin, size_t groups) {
  float* const y = args.y + row * args.y_stride + panel * kLanes;
  for (size_t r = 0; r < kTileRows; ++r) {
    for (size_t p = 0; p < P; ++p) {
      const float* from = y + r * args.y_stride + p * kLanes;
      _mm512_store_ps(scratch.f[p][r],
                      group_begin == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(from));
    }
  }
  const ActivationRows x = rows_at(args.quantized, row, group_begin);
  tile_kernel<F, P>(scratch.w, groups, x, scratch.f);
  for (size_t r = 0; r < kTileRows; ++r) {
    for (size_t p = 0; p < P; ++p) {
      _mm512_storeu_ps(y + r * args.y_stride + p * kLanes, _mm512_load_ps(scratch.f[p][r]));
    }
  }
}

template <class F, size_t P>
void tile_panels(const MatmulArgs& args, size_t panel, size_t group_begin, size_t groups) {
  static_assert(sizeof(TileScratch<F, P>) <= matmul_scratch_bytes());
  auto& scratch = *reinterpret_cast<TileScratch<F, P>*>(args.scratch);
  unpack<F, P, false>(args, panel, group_begin, groups, scratch.w);
  for (size_t row = 0; row + kBlock <= args.rows; row += kBlock) {
    tile_rows<F, P>(args, scratch, panel, row, group_begin, groups);
    tile_rows<F, P>(args, scratch, panel, row + kTileRows, group_begin, groups);
  }
}

template <class F>
void quantized_matmul(const MatmulArgs& args) {
  if (args.rows < 2 * kBlock) return rows_matmul<F>(args);  // unpacking would not pay
  for_each_chunk(args, 2, [&](size_t panel, size_t panels, size_t group_begin, size_t groups) {
    if (panels == 2) {
      tile_panels<F, 2>(args, panel, group_begin, groups);
    } else {
      tile_panels<F, 1>(args, panel, group_begin, groups);
    }
  });
  if (args.rows % kBlock != 0) rows_matmul<F>(last_block(args));
}

}  // namespace

}  // namespace kvikk::avx512
