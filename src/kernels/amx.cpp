// The AMX level: matrix products with many rows on the tile unit; all else is AVX-512's. A tile
// product covers 16 rows x 16 outputs x one group of 32 k: A is the activations as they lie
// ([16 rows][32], signed), B a panel unpacked to quads with the zero point already subtracted
// (signed), C the integer dots, exact like those of the AVX-512 kernels. C goes through the L1
// cache to the vector units, which do the float part in the promised order while the tile unit has
// the next group. On Sapphire Rapids the two hardly overlap, so a product costs the sum of its
// tile loads, dot, tile store and three or four vector operations for each row.

#include "kernels/amx_tiles.h"
#include "kernels/avx512_matmul.h"
#include "kernels/avx512_unpack.h"
#include "kernels/kernels.h"

namespace kvikk::amx {

void fill_attend(Kernels& kernels);  // amx_attend.cpp
void fill_peak(Kernels& kernels);    // amx_peak.cpp
void fill_search(Kernels& kernels);  // amx_search.cpp

namespace {

using namespace avx512;  // NOLINT: the formats, internal to this file

// The tile registers, twice each so that consecutive products do not wait for one another.
constexpr int kC = 0, kA = 2, kB = 4;

template <int kSum, int kRows, int kColumns>
inline void multiply_tiles() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
}

// A part is 32 or 16 k.
void configure(int parts) {
  TileConfig config;
  for (int t = 0; t < 6; ++t) {
    const bool a = t == kA || t == kA + 1;
    const bool b = t == kB || t == kB + 1;
    config.column_bytes[t] = static_cast<uint16_t>(a ? 32 / parts : 64);
    config.rows[t] = static_cast<uint8_t>(b ? 8 / parts : 16);
  }
  load_config(config);
}

// What lies in args.scratch.
template <class F>
struct Scratch {
  Unpacked<F, 1> w;                 // signed
  int32_t dots[2][kBlock][kLanes];  // of two consecutive steps
};

// A step is one dot for each output: of a group, or of half a group when 16 k share a scale. x is a
// full block.
template <class F, int kSet>
inline void issue_step(const Scratch<F>& s, size_t step, const ActivationRows& x) {
  const size_t g = step / F::kParts;
  const size_t part = step % F::kParts;
  load_tile<kA + kSet>(x.codes + g * kBlock * kGroupK + part * 16, kGroupK);
  load_tile<kB + kSet>(s.w.codes[g][0][part * kQuads / F::kParts], kLine);
  zero_tile<kC + kSet>();
  multiply_tiles<kC + kSet, kA + kSet, kB + kSet>();
}

// Stores the dots of the step and does its float part.
template <class F, int kSet>
inline void finish_step(Scratch<F>& s, size_t step, const ActivationRows& x, __m512 (&f)[kBlock]) {
  const size_t g = step / F::kParts;
  const float* const scales = x.scales + g * kBlock;
  const float* const sums = x.weighted_sums + g * kBlock;
  const __m512 scale = _mm512_load_ps(s.w.scales[g][step % F::kParts][0]);
  const __m512 minimum = F::kHasMin ? _mm512_load_ps(s.w.minimums[g][0]) : scale;
  store_tile<kC + kSet>(s.dots[kSet], kLine);
#pragma GCC unroll 16
  for (size_t r = 0; r < kBlock; ++r) {
    f[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(s.dots[kSet][r])),
                           _mm512_mul_ps(scale, _mm512_set1_ps(scales[r])), f[r]);
    if (F::kHasMin) f[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(sums[r]), f[r]);
  }
}

// A full block of rows over the unpacked groups of one panel. y [16, y_stride] holds the sums of
// the chunks before this one, unless it is the first.
template <class F>
void multiply_block(Scratch<F>& s, size_t groups, const ActivationRows& x, bool first, float* y,
                    size_t y_stride) {
  __m512 f[kBlock];
#pragma GCC unroll 16
  for (size_t r = 0; r < kBlock; ++r) {
    f[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * y_stride);
  }
  const size_t steps = groups * F::kParts;
  issue_step<F, 0>(s, 0, x);
  size_t step = 0;
  for (; step + 2 <= steps; step += 2) {
    issue_step<F, 1>(s, step + 1, x);
    finish_step<F, 0>(s, step, x, f);
    if (step + 2 < steps) issue_step<F, 0>(s, step + 2, x);
    finish_step<F, 1>(s, step + 1, x, f);
  }
  if (step < steps) finish_step<F, 0>(s, step, x, f);
#pragma GCC unroll 16
  for (size_t r = 0; r < kBlock; ++r) _mm512_storeu_ps(y + r * y_stride, f[r]);
}

template <class F, void (*kFewRows)(const MatmulArgs&)>
void matmul(const MatmulArgs& args) {
  if (args.rows >= kBlock) {
    static_assert(sizeof(Scratch<F>) <= matmul_scratch_bytes());
    auto& scratch = *reinterpret_cast<Scratch<F>*>(args.scratch);
    configure(F::kParts);
    for_each_chunk(args, 1, [&](size_t panel, size_t, size_t group_begin, size_t groups) {
      unpack<F, 1, true>(args, panel, group_begin, groups, scratch.w);
      for (size_t row = 0; row + kBlock <= args.rows; row += kBlock) {
        multiply_block(scratch, groups, rows_at(args.quantized, row, group_begin), group_begin == 0,
                       args.y + row * args.y_stride + panel * kLanes, args.y_stride);
      }
    });
    release_tiles();
  }
  if (args.rows % kBlock != 0) kFewRows(last_block(args));
}

}  // namespace

void fill(Kernels& kernels) {
  kernels.level = "amx";
  fill_attend(kernels);
  fill_peak(kernels);
  fill_search(kernels);
  const auto set = [&](PanelFormat format, void (*entry)(const MatmulArgs&)) {
    kernels.matmul[static_cast<size_t>(format)] = entry;
  };
  set(PanelFormat::kQ8, matmul<Q8, matmul_q8>);
  set(PanelFormat::kQ4, matmul<Q4, matmul_q4>);
  set(PanelFormat::kQ4M, matmul<Q4M, matmul_q4m>);
  set(PanelFormat::kQ5, matmul<Q5, matmul_q5>);
  set(PanelFormat::kQ5M, matmul<Q5M, matmul_q5m>);
  set(PanelFormat::kQ4K, matmul<Q4K, matmul_q4k>);
  set(PanelFormat::kQ5K, matmul<Q5K, matmul_q5k>);
  set(PanelFormat::kQ6K, matmul<Q6K, matmul_q6k>);
}

}  // namespace kvikk::amx
