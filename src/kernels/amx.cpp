// The AMX level: matrix products with many rows on the tile unit; all else is AVX-512's. A tile
// product covers 16 rows x 16 outputs x one group of 32 k: A is the activations as they lie
// ([16 rows][32], signed), B a panel unpacked to quads with the zero point already subtracted
// (signed), C the integer dots, exact like those of the AVX-512 kernels. C goes through the L1
// cache to the vector units, which do the float part in the promised order; that part is the
// larger one (three to four vector operations for each row of a tile).

#include "kernels/avx512_matmul.h"
#include "kernels/avx512_unpack.h"
#include "kernels/kernels.h"

namespace kvikk::amx {

namespace {

using namespace avx512;  // NOLINT: the formats, internal to this file

constexpr size_t kRowsMin = 9;  // below, AVX-512 is faster
constexpr size_t kBatch = 4;    // groups whose dots wait in the L1 cache
constexpr size_t kBlocks = 2;   // blocks of rows at once

// The tile registers: sums of block b and panel p at 2 b + p, A of block b, B of panel p.
constexpr int kA = 4, kB = 6;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

// In assembly: g++ 12 declares 8 of the 64 bytes as read, and no memory for tile loads.
void load_config(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }

void release_tiles() { asm volatile("tilerelease"); }

template <int kTile>
inline void load_tile(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void store_tile(void* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(to), "r"(size_t{64}), "i"(kTile)
               : "memory");
}

template <int kTile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kSum, int kRows, int kColumns>
inline void multiply_tiles() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
}

// For blocks of rows0 and rows1 rows. A part is 32 or 16 k.
void configure(size_t rows0, size_t rows1, int parts) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    const bool a = t == kA || t == kA + 1;
    const bool b = t == kB || t == kB + 1;
    const bool second = t == 2 || t == 3 || t == kA + 1;
    config.column_bytes[t] = static_cast<uint16_t>(a ? 32 / parts : 64);
    config.rows[t] = static_cast<uint8_t>(b ? 8 / parts : second ? rows1 : rows0);
  }
  load_config(config);
}

// What lies in args.scratch.
template <class F, size_t P>
struct Scratch {
  Unpacked<F, P> w;  // signed
  int32_t dots[kBatch][F::kParts][kBlocks][P][kBlock][kLanes];
  float f[kBlocks][kBlock][P][kLanes];
};

// Groups [begin, begin + count) of all panels and blocks.
struct Batch {
  size_t begin;
  size_t count;
};

template <int kSum, int kRows, int kColumns>
inline void next_product(void* previous) {
  if (previous != nullptr) store_tile<kSum>(previous);
  zero_tile<kSum>();
  multiply_tiles<kSum, kRows, kColumns>();
}

// The dots of a batch. A product is stored only when its tile is needed again: storing it at once
// would wait for it.
template <class F, size_t P, size_t B>
void multiply_batch(Scratch<F, P>& s, const Batch& batch, const ActivationRows (&x)[B]) {
  constexpr size_t kParts = F::kParts;
  int32_t(*previous)[P][kBlock][kLanes] = nullptr;
  for (size_t i = 0; i < batch.count; ++i) {
    const size_t g = batch.begin + i;
#pragma GCC unroll 2
    for (size_t h = 0; h < kParts; ++h) {
      const size_t quad = h * kQuads / kParts;
      load_tile<kA>(x[0].codes + g * x[0].stride * kGroupK + h * 16, kGroupK);
      load_tile<kB>(s.w.codes[g][0][quad], kLine);
      if constexpr (P == 2) load_tile<kB + 1>(s.w.codes[g][1][quad], kLine);
      next_product<0, kA, kB>(previous == nullptr ? nullptr : previous[0][0]);
      if constexpr (P == 2) next_product<1, kA, kB + 1>(previous ? previous[0][1] : nullptr);
      if constexpr (B == 2) {
        load_tile<kA + 1>(x[1].codes + g * x[1].stride * kGroupK + h * 16, kGroupK);
        next_product<2, kA + 1, kB>(previous ? previous[1][0] : nullptr);
        if constexpr (P == 2) next_product<3, kA + 1, kB + 1>(previous ? previous[1][1] : nullptr);
      }
      previous = s.dots[i][h];
    }
  }
  store_tile<0>(previous[0][0]);
  if constexpr (P == 2) store_tile<1>(previous[0][1]);
  if constexpr (B == 2) store_tile<2>(previous[1][0]);
  if constexpr (B == 2 && P == 2) store_tile<3>(previous[1][1]);
}

// The float part of a batch for M rows of block b.
template <class F, size_t P, size_t M>
void combine_rows(Scratch<F, P>& s, const Batch& batch, const ActivationRows& x, size_t b,
                  size_t row) {
  __m512 f[P][M];
#pragma GCC unroll 8
  for (size_t r = 0; r < M; ++r) {
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p) f[p][r] = _mm512_load_ps(s.f[b][row + r][p]);
  }
  for (size_t i = 0; i < batch.count; ++i) {
    const size_t g = batch.begin + i;
    const float* const scales = x.scales + g * x.stride + row;
#pragma GCC unroll 2
    for (size_t h = 0; h < F::kParts; ++h) {
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) {
        const __m512 scale = _mm512_set1_ps(scales[r]);
#pragma GCC unroll 2
        for (size_t p = 0; p < P; ++p) {
          const __m512i dots = _mm512_load_si512(s.dots[i][h][b][p][row + r]);
          f[p][r] =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                              _mm512_mul_ps(_mm512_load_ps(s.w.scales[g][h][p]), scale), f[p][r]);
        }
      }
    }
    if (F::kHasMin) {
      const float* const sums = x.weighted_sums + g * x.stride + row;
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) {
        const __m512 sum = _mm512_set1_ps(sums[r]);
#pragma GCC unroll 2
        for (size_t p = 0; p < P; ++p) {
          f[p][r] = _mm512_fmadd_ps(_mm512_load_ps(s.w.minimums[g][p]), sum, f[p][r]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < M; ++r) {
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p) _mm512_store_ps(s.f[b][row + r][p], f[p][r]);
  }
}

template <class F, size_t P>
void combine_block(Scratch<F, P>& s, const Batch& batch, const ActivationRows& x, size_t b) {
  size_t row = 0;
  for (; row + 8 <= x.stride; row += 8) combine_rows<F, P, 8>(s, batch, x, b, row);
  for (; row + 2 <= x.stride; row += 2) combine_rows<F, P, 2>(s, batch, x, b, row);
  if (row < x.stride) combine_rows<F, P, 1>(s, batch, x, b, row);
}

// A block from `group_begin` on; its stride is the number of its rows.
ActivationRows block_at(const QuantizedRows& x, size_t block, size_t group_begin) {
  const size_t stride = x.rows - block < kBlock ? x.rows - block : kBlock;
  const size_t at = block * x.groups + group_begin * stride;
  return {x.codes + at * kGroupK, x.scales + at, x.sums + 2 * at, x.weighted_sums + at, stride};
}

// P panels times B blocks, over the unpacked groups. y is read too unless this is the first chunk.
template <class F, size_t P, size_t B>
void multiply_blocks(Scratch<F, P>& s, size_t groups, const ActivationRows (&x)[B], bool first,
                     float* y, size_t y_stride) {
  for (size_t b = 0; b < B; ++b) {
    for (size_t r = 0; r < x[b].stride; ++r) {
      const float* from = y + (b * kBlock + r) * y_stride;
      for (size_t p = 0; p < P; ++p) {
        _mm512_store_ps(s.f[b][r][p],
                        first ? _mm512_setzero_ps() : _mm512_loadu_ps(from + p * kLanes));
      }
    }
  }
  for (Batch batch = {0, 0}; batch.begin < groups; batch.begin += batch.count) {
    const size_t left = groups - batch.begin;
    batch.count = left < kBatch ? left : kBatch;
    multiply_batch<F, P, B>(s, batch, x);
    for (size_t b = 0; b < B; ++b) combine_block(s, batch, x[b], b);
  }
  for (size_t b = 0; b < B; ++b) {
    for (size_t r = 0; r < x[b].stride; ++r) {
      float* to = y + (b * kBlock + r) * y_stride;
      for (size_t p = 0; p < P; ++p) {
        _mm512_storeu_ps(to + p * kLanes, _mm512_load_ps(s.f[b][r][p]));
      }
    }
  }
}

template <class F, size_t P>
void multiply_panels(const MatmulArgs& args, size_t panel, size_t group_begin, size_t groups) {
  auto& s = *reinterpret_cast<Scratch<F, P>*>(args.scratch);
  unpack<F, P, true>(args, panel, group_begin, groups, s.w);
  const bool first = group_begin == 0;
  size_t row = 0;
  size_t configured = 0;  // rows of the second block
  for (; row + kBlock < args.rows; row += 2 * kBlock) {
    const ActivationRows x[2] = {block_at(args.quantized, row, group_begin),
                                 block_at(args.quantized, row + kBlock, group_begin)};
    if (configured != x[1].stride) configure(kBlock, x[1].stride, F::kParts);
    configured = x[1].stride;
    multiply_blocks<F, P, 2>(s, groups, x, first, args.y + row * args.y_stride + panel * kLanes,
                             args.y_stride);
  }
  if (row < args.rows) {
    const ActivationRows x[1] = {block_at(args.quantized, row, group_begin)};
    configure(x[0].stride, kBlock, F::kParts);
    multiply_blocks<F, P, 1>(s, groups, x, first, args.y + row * args.y_stride + panel * kLanes,
                             args.y_stride);
  }
}

template <class F, void (*kFewRows)(const MatmulArgs&)>
void matmul(const MatmulArgs& args) {
  if (args.rows < kRowsMin) return kFewRows(args);
  for_each_chunk(args, [&](size_t panel, size_t panels, size_t group_begin, size_t groups) {
    if (panels == 2) {
      multiply_panels<F, 2>(args, panel, group_begin, groups);
    } else {
      multiply_panels<F, 1>(args, panel, group_begin, groups);
    }
  });
  release_tiles();
}

}  // namespace

void fill(Kernels& kernels) {
  kernels.level = "amx";
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
