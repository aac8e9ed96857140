#pragma once
// Panels unpacked to bytes and float32 scales, for products with many rows: a chunk of the groups
// of one or two panels, small enough to stay in the L1 cache while all rows pass.

#include "kernels/avx512_panels.h"

namespace kvikk::avx512 {

namespace {

constexpr size_t kChunk = 32;  // groups; a multiple of a super-group's 8
constexpr size_t kUnpackAheadBytes = 2048;

template <class F, size_t P>
struct Unpacked {
  uint8_t codes[kChunk][P][kQuads][kLine];
  float scales[kChunk][F::kParts][P][kLanes];
  float minimums[F::kHasMin ? kChunk : 1][P][kLanes];
};

// Groups [group_begin, group_begin + groups) of P panels. kSigned: the zero point is subtracted.
template <class F, size_t P, bool kSigned>
void unpack(const MatmulArgs& args, size_t panel, size_t group_begin, size_t groups,
            Unpacked<F, P>& out) {
  constexpr size_t kGroupBytes = F::kUnitBytes / F::kUnitGroups;
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(F::kZero));
  for (size_t g = 0; g < groups; ++g) {
    const size_t i = (group_begin + g) % F::kUnitGroups;
    const uint8_t* unit =
        args.panels + panel * args.panel_bytes + (group_begin + g) / F::kUnitGroups * F::kUnitBytes;
    for (size_t p = 0; p < P; ++p, unit += args.panel_bytes) {
#pragma GCC unroll 16
      for (size_t line = 0; line < kGroupBytes; line += kLine) {
        _mm_prefetch(
            reinterpret_cast<const char*>(unit + i * kGroupBytes + kUnpackAheadBytes + line),
            _MM_HINT_T0);
      }
      __m512i q[kQuads];
      F::quads(unit, i, q);
#pragma GCC unroll 8
      for (size_t j = 0; j < kQuads; ++j) {
        _mm512_store_si512(out.codes[g][p][j], kSigned ? _mm512_sub_epi8(q[j], zero) : q[j]);
      }
#pragma GCC unroll 2
      for (size_t h = 0; h < F::kParts; ++h) {
        _mm512_store_ps(out.scales[g][h][p], F::scale(unit, i, static_cast<int>(h)));
      }
      if (F::kHasMin) _mm512_store_ps(out.minimums[g][p], F::minimum(unit, i));
    }
  }
}

// Calls one_chunk(panel, panels at once, group_begin, groups) for chunk after chunk of k, so that
// the activations of a chunk stay in the L2 cache over the panels of this call.
template <class OneChunk>
inline void for_each_chunk(const MatmulArgs& args, size_t panels, const OneChunk& one_chunk) {
  const size_t groups = args.k / kGroupK;
  for (size_t begin = 0; begin < groups; begin += kChunk) {
    const size_t count = groups - begin < kChunk ? groups - begin : kChunk;
    for (size_t p = args.panel_begin; p < args.panel_end; p += panels) {
      const size_t left = args.panel_end - p;
      one_chunk(p, left < panels ? left : panels, begin, count);
    }
  }
}

// What is left after all full blocks of rows.
inline MatmulArgs last_block(const MatmulArgs& args) {
  const size_t row = args.rows / kBlock * kBlock;
  const size_t at = row * args.quantized.groups;
  MatmulArgs last = args;
  last.rows = args.rows - row;
  last.quantized.rows -= row;
  last.quantized.codes += at * kGroupK;
  last.quantized.scales += at;
  last.quantized.sums += 2 * at;
  last.quantized.weighted_sums += at;
  last.y += row * args.y_stride;
  return last;
}

}  // namespace

}  // namespace kvikk::avx512
