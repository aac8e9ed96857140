#pragma once
// Products of quantized panels, as templates over the format (avx512_panels.h). Two kernels give
// the same bits:
//   rows  unpacks the weights in registers and uses them for up to 8 rows; several panels at once,
//         because one stream of loads does not fill the memory bus
//   tile  unpacks two panels to bytes once and runs all rows over them
// The order of the float operations is fixed in kernels.h.

#include "kernels/avx512_panels.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {

namespace {

constexpr size_t kRowsMax = 8;       // of the rows kernel
constexpr size_t kTileRowsMin = 17;  // from here on unpacking once pays
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

inline ActivationRows rows_at(const QuantizedRows& x, size_t row) {
  const size_t block = row / kBlock * kBlock;
  const size_t stride = x.rows - block < kBlock ? x.rows - block : kBlock;
  const size_t at = block * x.groups + (row - block);
  return {x.codes + block * x.groups * kGroupK + (row - block) * kGroupK, x.scales + at,
          x.sums + 2 * at, x.weighted_sums + at, stride};
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
          __m512i even = dot_start<F>(x.sums + 2 * row_at, h);
          __m512i odd = _mm512_setzero_si512();
#pragma GCC unroll 4
          for (int j = h * kDots; j < (h + 1) * kDots; j += 2) {
            dot_quad(even, q[j], row + 4 * j);
            dot_quad(odd, q[j + 1], row + 4 * j + 4);
          }
          f[p][r] =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)),
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
  const ActivationRows x = rows_at(args.quantized, row);
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

// One or two panels unpacked in args.scratch.
struct Unpacked {
  uint8_t* codes;   // [groups][8 quads][P][64]
  float* scales;    // [groups][parts][P][16]
  float* minimums;  // [groups][P][16]
};

template <class F, int P>
void unpack(const uint8_t* panels, size_t panel_bytes, size_t group_begin, size_t groups,
            const Unpacked& out) {
  for (size_t g = 0; g < groups; ++g) {
    const size_t from = group_begin + g;
    const uint8_t* unit = panels + from / F::kUnitGroups * F::kUnitBytes;
    const size_t i = from % F::kUnitGroups;
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p) {
      __m512i q[kQuads];
      F::quads(unit + p * panel_bytes, i, q);
#pragma GCC unroll 8
      for (size_t j = 0; j < kQuads; ++j) {
        _mm512_store_si512(out.codes + ((g * kQuads + j) * P + p) * kLine, q[j]);
      }
#pragma GCC unroll 2
      for (size_t h = 0; h < F::kParts; ++h) {
        _mm512_store_ps(out.scales + ((g * F::kParts + h) * P + p) * kLanes,
                        F::scale(unit + p * panel_bytes, i, static_cast<int>(h)));
      }
      if (F::kHasMin) {
        _mm512_store_ps(out.minimums + (g * P + p) * kLanes, F::minimum(unit + p * panel_bytes, i));
      }
    }
  }
}

// P unpacked panels times M rows: 2 x 8 sums in registers, the floats f [P][M][16] in the L1 cache.
template <class F, int P, int M>
void tile_kernel(const Unpacked& w, size_t groups, const ActivationRows& x, float* f) {
  constexpr size_t kDots = kQuads / F::kParts;
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = g * x.stride;
#pragma GCC unroll 2
    for (size_t h = 0; h < F::kParts; ++h) {
      const uint8_t* codes = w.codes + (g * kQuads + h * kDots) * P * kLine;
      const int8_t* rows = x.codes + at * kGroupK + h * kDots * 4;
      __m512i sums[P][M];
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) {
        sums[0][r] = dot_start<F>(x.sums + 2 * (at + r), static_cast<int>(h));
        if (P == 2) sums[P - 1][r] = sums[0][r];
      }
#pragma GCC unroll 8
      for (size_t j = 0; j < kDots; ++j) {
        const __m512i q0 = _mm512_load_si512(codes + j * P * kLine);
        const __m512i q1 = _mm512_load_si512(codes + (j * P + P - 1) * kLine);
#pragma GCC unroll 8
        for (size_t r = 0; r < M; ++r) {
          const __m512i quad =
              _mm512_set1_epi32(*reinterpret_cast<const Quad*>(rows + r * kGroupK + j * 4));
          dot_quad(sums[0][r], q0, quad);
          if (P == 2) dot_quad(sums[P - 1][r], q1, quad);
        }
      }
#pragma GCC unroll 2
      for (size_t p = 0; p < P; ++p) {
        const __m512 scale = _mm512_load_ps(w.scales + ((g * F::kParts + h) * P + p) * kLanes);
#pragma GCC unroll 8
        for (size_t r = 0; r < M; ++r) {
          float* to = f + (p * M + r) * kLanes;
          __m512 value = _mm512_load_ps(to);
          value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[p][r]),
                                  _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[at + r])), value);
          if (F::kHasMin) {
            value = _mm512_fmadd_ps(_mm512_load_ps(w.minimums + (g * P + p) * kLanes),
                                    _mm512_set1_ps(x.weighted_sums[at + r]), value);
          }
          _mm512_store_ps(to, value);
        }
      }
      asm volatile("" ::: "memory");  // keeps the compiler from holding f in registers
    }
  }
}

template <class F, int P, int M>
void tile_rows(const MatmulArgs& args, const Unpacked& w, size_t panel, size_t row, float* f) {
  for (size_t i = 0; i < P * M; ++i) _mm512_store_ps(f + i * kLanes, _mm512_setzero_ps());
  tile_kernel<F, P, M>(w, args.k / kGroupK, rows_at(args.quantized, row), f);
  for (size_t p = 0; p < P; ++p) {
    for (size_t r = 0; r < M; ++r) {
      _mm512_storeu_ps(args.y + (row + r) * args.y_stride + (panel + p) * kLanes,
                       _mm512_load_ps(f + (p * M + r) * kLanes));
    }
  }
}

template <class F, int P>
void tile_panels(const MatmulArgs& args, size_t panel) {
  const size_t groups = args.k / kGroupK;
  float* const f = reinterpret_cast<float*>(args.scratch);  // [P][8][16]
  Unpacked w;
  w.scales = f + 2 * kRowsMax * kLanes;
  w.minimums = w.scales + groups * F::kParts * P * kLanes;
  w.codes = reinterpret_cast<uint8_t*>(w.minimums + (F::kHasMin ? groups * P * kLanes : 0));
  unpack<F, P>(args.panels + panel * args.panel_bytes, args.panel_bytes, 0, groups, w);
  size_t row = 0;
  while (row < args.rows) {
    const size_t left = args.rows - row;
    const size_t in_block = kBlock - row % kBlock;
    const size_t run = left < in_block ? left : in_block;
    const size_t m = run >= 8 ? 8 : run >= 4 ? 4 : 1;
    switch (m) {
      case 8:
        tile_rows<F, P, 8>(args, w, panel, row, f);
        break;
      case 4:
        tile_rows<F, P, 4>(args, w, panel, row, f);
        break;
      default:
        tile_rows<F, P, 1>(args, w, panel, row, f);
        break;
    }
    row += m;
  }
}

template <class F>
void quantized_matmul(const MatmulArgs& args) {
  if (args.rows < kTileRowsMin) return rows_matmul<F>(args);
  size_t p = args.panel_begin;
  for (; p + 2 <= args.panel_end; p += 2) tile_panels<F, 2>(args, p);
  if (p < args.panel_end) tile_panels<F, 1>(args, p);
}

}  // namespace

}  // namespace kvikk::avx512
