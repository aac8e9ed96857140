#pragma once
// Products of quantized panels with few rows: the weights are unpacked in registers and used for up
// to 8 rows; several panels at once, because one stream of loads does not fill the memory bus. The
// order of the float operations is fixed in kernels.h.

#include "kernels/avx512_panels.h"

namespace kvikk::avx512 {

namespace {

constexpr size_t kRowsMax = 8;  // of the rows kernel
constexpr size_t kAheadBytes = 1536;

typedef int32_t Quad __attribute__((may_alias));

// sums += codes (unsigned) * the four activations at x (signed), 16 dots of 4. In assembly because
// g++ 12 spills around the intrinsic; the broadcast costs nothing as a memory operand.
inline void dot_quad(__m512i& sums, __m512i codes, const int8_t* x) {
  asm("vpdpbusd %1%{1to16%}, %2, %0"
      : "+v"(sums)
      : "m"(*reinterpret_cast<const Quad*>(x)), "v"(codes));
}

inline void dot_quad(__m512i& sums, __m512i codes, __m512i x) {
  asm("vpdpbusd %1, %2, %0" : "+v"(sums) : "v"(x), "v"(codes));
}

// What the sums of a dot start with: -zero point * sum of the activations.
template <class F>
inline __m512i dot_start(const int32_t* sums, int part) {
  if (F::kZero == 0) return _mm512_setzero_si512();
  const int32_t sum = F::kParts == 2 ? sums[part] : sums[0] + sums[1];
  return _mm512_set1_epi32(-F::kZero * sum);
}

// P panels times M rows.
template <class F, int P, int M>
void rows_kernel(const uint8_t* panels, size_t panel_bytes, size_t groups, const ActivationRows& x,
                 float* y, size_t y_stride) {
  constexpr size_t kGroupBytes = F::kUnitBytes / F::kUnitGroups;
  __m512 f[P][M];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < M; ++r) f[p][r] = _mm512_setzero_ps();
  }
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* unit = panels + g / F::kUnitGroups * F::kUnitBytes;
    const size_t i = g % F::kUnitGroups;
    const int8_t* codes = x.codes + g * x.stride * kGroupK;
    const size_t at = g * x.stride;
    // Past the end of these panels lies, for stream p, the panel P further on.
    size_t ahead = g * kGroupBytes + kAheadBytes;
    if (ahead >= panel_bytes) ahead += (P - 1) * panel_bytes;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const size_t offset = static_cast<size_t>(p) * panel_bytes;
#pragma GCC unroll 16
      for (size_t line = 0; line < kGroupBytes; line += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(panels + offset + ahead + line), _MM_HINT_T0);
      }
      __m512i q[kQuads];
      F::quads(unit + offset, i, q);
      __m512 scale[F::kParts];
#pragma GCC unroll 2
      for (int h = 0; h < F::kParts; ++h) scale[h] = F::scale(unit + offset, i, h);
      const __m512 minimum = F::minimum(unit + offset, i);
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) {
        const int8_t* row = codes + static_cast<size_t>(r) * kGroupK;
        const size_t row_at = at + static_cast<size_t>(r);
#pragma GCC unroll 2
        for (int h = 0; h < F::kParts; ++h) {
          constexpr int kDots = static_cast<int>(kQuads) / F::kParts;
          constexpr int kOdd = M < 4 ? 1 : 0;  // few rows: two sums, or each waits for the last
          __m512i sums[2] = {dot_start<F>(x.sums + 2 * row_at, h), _mm512_setzero_si512()};
#pragma GCC unroll 4
          for (int j = h * kDots; j < (h + 1) * kDots; j += 2) {
            dot_quad(sums[0], q[j], row + 4 * j);
            dot_quad(sums[kOdd], q[j + 1], row + 4 * j + 4);
          }
          const __m512i dot = kOdd == 1 ? _mm512_add_epi32(sums[0], sums[1]) : sums[0];
          f[p][r] =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                              _mm512_mul_ps(scale[h], _mm512_set1_ps(x.scales[row_at])), f[p][r]);
        }
        if (F::kHasMin) {
          f[p][r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x.weighted_sums[row_at]), f[p][r]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < M; ++r) {
      _mm512_storeu_ps(y + static_cast<size_t>(r) * y_stride + static_cast<size_t>(p) * kLanes,
                       f[p][r]);
    }
  }
}

// Panels [begin, end) times M rows from `row`, P panels at a time.
template <class F, int P, int M>
void rows_panels(const MatmulArgs& args, size_t row) {
  const ActivationRows x = rows_at(args.quantized, row, 0);
  const size_t groups = args.k / kGroupK;
  float* y = args.y + row * args.y_stride;
  size_t p = args.panel_begin;
  for (; p + P <= args.panel_end; p += P) {
    rows_kernel<F, P, M>(args.panels + p * args.panel_bytes, args.panel_bytes, groups, x,
                         y + p * kLanes, args.y_stride);
  }
  for (; p < args.panel_end; ++p) {
    rows_kernel<F, 1, M>(args.panels + p * args.panel_bytes, args.panel_bytes, groups, x,
                         y + p * kLanes, args.y_stride);
  }
}

template <class F>
void rows_matmul(const MatmulArgs& args) {
  for (size_t block = 0; block < args.rows; block += kBlock) {
    const size_t end = args.rows - block < kBlock ? args.rows : block + kBlock;
    const size_t parts = (end - block + kRowsMax - 1) / kRowsMax;
    for (size_t row = block, left = parts; row < end; --left) {
      const size_t m = (end - row + left - 1) / left;
      switch (m) {
        case 1:
          rows_panels<F, 4, 1>(args, row);
          break;
        case 2:
          rows_panels<F, 4, 2>(args, row);
          break;
        case 3:
          rows_panels<F, 2, 3>(args, row);
          break;
        case 4:
          rows_panels<F, 2, 4>(args, row);
          break;
        case 5:
          rows_panels<F, 2, 5>(args, row);
          break;
        case 6:
          rows_panels<F, 2, 6>(args, row);
          break;
        case 7:
          rows_panels<F, 2, 7>(args, row);
          break;
        default:
          rows_panels<F, 2, 8>(args, row);
          break;
      }
      row += m;
    }
  }
}

}  // namespace

}  // namespace kvikk::avx512
