// Attention over KV pages for AVX-512, decode and prefill alike. Rows (queries that share the KV
// head) are taken in tiles of up to 12: a tile shares every load of a key or value line. All
// arithmetic is float32; bfloat16 keys and values are widened in registers, which is exact. The
// bfloat16 dot product is no help: to be as accurate it needs the query and the weights in two
// parts each, then costs as many instructions as the fused multiply-adds, and it runs at half their
// rate or a quarter on some processors (Sapphire Rapids: 1.65 against 6.5 G/s).
//
// Row invariance: each row has its own accumulators, and the order of the operations on them does
// not depend on the size of the tile.

#include "kernels/avx512_softmax.h"
#include "kernels/avx512_values.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_attend(Kernels& kernels);

namespace {

constexpr size_t kLine = 64;
constexpr size_t kTileRows = 12;
// Memory is asked for half a page ahead, into the second-level cache: with keys underway the page's
// values, with values underway the next page's keys. A second prefetch fetches from there.
constexpr size_t kNearBytes = 8 * kLine;

// A line holds 16 lanes x kParts consecutive steps of the sum: dims of a key, tokens of a value.
struct BFloat16Page {
  static constexpr size_t kParts = 2;
  template <size_t kPart>
  static __m512 part(const uint8_t* line) {
    const __m512i bits = _mm512_loadu_si512(line);
    if constexpr (kPart == 0) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    } else {
      return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
    }
  }
  static void take_values(const uint8_t* keys, size_t key_dim, size_t value_dim, uint8_t* values) {
    take_bf16_values(keys, key_dim, value_dim, values);
  }
};

struct Float32Page {
  static constexpr size_t kParts = 1;
  template <size_t kPart>
  static __m512 part(const uint8_t* line) {
    return _mm512_loadu_ps(line);
  }
  static void take_values(const uint8_t* keys, size_t key_dim, size_t value_dim, uint8_t* values) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i lines = _mm512_slli_epi32(lane, 6);
    for (size_t token = 0; token < kPageTokens; ++token) {
      const uint8_t* from = keys + token / kLanes * key_dim * kLine + token % kLanes * 4;
      for (size_t d = 0; d < value_dim; d += kLanes) {
        _mm512_storeu_ps(values + (token * value_dim + d) * 4,
                         _mm512_i32gather_ps(lines, from + d * kLine, 1));
      }
    }
  }
};

// One tile of rows on one page.
struct Tile {
  const uint8_t* keys;
  const uint8_t* values;
  const uint8_t* next;  // the keys of the page after it (or the same): prefetched while values pass
  size_t key_dim;
  size_t value_dim;
  float softcap;
  RunningSoftmax softmax;
  const float* queries;  // [key_dim][rows]
  float* acc;            // [rows][value_dim]
  float* weights;        // [kTileRows][64]: scores, then weights
};

// Scores of kBlocks blocks of 16 tokens: key lines are read once for all rows.
template <class Page, size_t kRows, size_t kBlocks>
void score_blocks(const Tile& tile, size_t block) {
  const size_t lines = tile.key_dim / Page::kParts;
  const uint8_t* keys = tile.keys + block * lines * kLine;
  const uint8_t* ahead = keys + kPageTokens * lines / kLanes * kLine;  // this page's values
  const float* query = tile.queries;
  __m512 sum[kRows][kBlocks];
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) sum[r][b] = _mm512_setzero_ps();
  }
  const auto step = [&]<size_t kPart>() __attribute__((always_inline)) {
    __m512 key[kBlocks];
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      key[b] = Page::template part<kPart>(keys + b * lines * kLine);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const __m512 q = _mm512_set1_ps(query[kPart * kRows + r]);
#pragma GCC unroll 16
      for (size_t b = 0; b < kBlocks; ++b) sum[r][b] = _mm512_fmadd_ps(key[b], q, sum[r][b]);
    }
  };
  for (size_t i = 0; i < lines; ++i) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + b * lines * kLine), _MM_HINT_T1);
    }
    _mm_prefetch(reinterpret_cast<const char*>(keys + kNearBytes), _MM_HINT_T0);
    step.template operator()<0>();
    if constexpr (Page::kParts == 2) step.template operator()<1>();
    keys += kLine;
    ahead += kLine;
    query += Page::kParts * kRows;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      _mm512_storeu_ps(tile.weights + r * kPageTokens + (block + b) * kLanes, sum[r][b]);
    }
  }
}

// acc = acc * rescale + weights * values for kBlocks blocks of 16 dims.
template <class Page, size_t kRows, size_t kBlocks>
void add_blocks(const Tile& tile, size_t block) {
  const size_t stride = tile.value_dim / kLanes * kLine;  // from one step of tokens to the next
  const uint8_t* values = tile.values + block * kLine;
  const uint8_t* ahead = tile.next + block * kLine;  // the next page's keys
  const float* weight = tile.weights;
  float* acc = tile.acc + block * kLanes;
  __m512 sum[kRows][kBlocks];
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
    const __m512 rescale = _mm512_set1_ps(tile.softmax.rescale[r]);
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      sum[r][b] = _mm512_mul_ps(_mm512_loadu_ps(acc + r * tile.value_dim + b * kLanes), rescale);
    }
  }
  const auto step = [&]<size_t kPart>() __attribute__((always_inline)) {
    __m512 value[kBlocks];
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      value[b] = Page::template part<kPart>(values + b * kLine);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const __m512 w = _mm512_set1_ps(weight[r * kPageTokens + kPart]);
#pragma GCC unroll 16
      for (size_t b = 0; b < kBlocks; ++b) sum[r][b] = _mm512_fmadd_ps(value[b], w, sum[r][b]);
    }
  };
  for (size_t i = 0; i < kPageTokens / Page::kParts; ++i) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + b * kLine), _MM_HINT_T1);
    }
    _mm_prefetch(reinterpret_cast<const char*>(values + kNearBytes), _MM_HINT_T0);
    step.template operator()<0>();
    if constexpr (Page::kParts == 2) step.template operator()<1>();
    values += stride;
    ahead += stride;
    weight += Page::kParts;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      _mm512_storeu_ps(acc + r * tile.value_dim + b * kLanes, sum[r][b]);
    }
  }
}

// kRows x kBlocks accumulators, and the lines beside them, fit the 32 registers.
template <class Page, size_t kRows>
void attend_tile(const Tile& tile) {
  constexpr size_t kBlocks = kRows <= 6 ? 4 : 2;
  for (size_t block = 0; block < kPageTokens / kLanes; block += kBlocks) {
    score_blocks<Page, kRows, kBlocks>(tile, block);
  }
  if (tile.softcap > 0.0f) cap_scores(tile.weights, kRows * kPageTokens, tile.softcap);
  weigh_rows<kTileRows>(tile.softmax, tile.weights);
  const size_t blocks = tile.value_dim / kLanes;
  size_t block = 0;
  for (; block + kBlocks <= blocks; block += kBlocks) {
    add_blocks<Page, kRows, kBlocks>(tile, block);
  }
  for (; block < blocks; ++block) add_blocks<Page, kRows, 1>(tile, block);
}

using TileFunction = void (*)(const Tile& tile);

template <class Page>
constexpr TileFunction kAttendTile[kTileRows + 1] = {
    nullptr,
    attend_tile<Page, 1>,
    attend_tile<Page, 2>,
    attend_tile<Page, 3>,
    attend_tile<Page, 4>,
    attend_tile<Page, 5>,
    attend_tile<Page, 6>,
    attend_tile<Page, 7>,
    attend_tile<Page, 8>,
    attend_tile<Page, 9>,
    attend_tile<Page, 10>,
    attend_tile<Page, 11>,
    attend_tile<Page, 12>,
};

// Rows of one tile in the order that a tile reads them, [dim][rows].
void transpose_queries(const float* queries, size_t rows, size_t dim, float* out) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t d = 0; d < dim; ++d) out[d * rows + r] = queries[r * dim + d];
  }
}

template <class Page>
void attend(const AttendArgs& args) {
  if (args.rows == 0) return;
  const size_t tiles = (args.rows + kTileRows - 1) / kTileRows;  // rows are dealt out evenly
  float* weights = reinterpret_cast<float*>(args.scratch);       // [kTileRows][64]
  float* sums = weights + kTileRows * kPageTokens;               // [rows][16]
  float* queries = sums + args.rows * kLanes;                    // [tiles][key_dim][tile rows]
  // [64, value_dim] as a page's values, where a page has none of its own
  uint8_t* taken = reinterpret_cast<uint8_t*>(queries + args.rows * args.key_dim);
  taken += (kLine - reinterpret_cast<uintptr_t>(taken) % kLine) % kLine;
  for (size_t i = 0; i < args.rows; ++i) args.max[i] = kNothingVisible;
  for (size_t i = 0; i < args.rows * kLanes; ++i) sums[i] = 0.0f;
  for (size_t i = 0; i < args.rows * args.value_dim; ++i) args.acc[i] = 0.0f;
  for (size_t t = 0; t < tiles; ++t) {
    const size_t row = args.rows * t / tiles;
    const size_t rows = args.rows * (t + 1) / tiles - row;
    const size_t at = row * args.key_dim;
    transpose_queries(args.queries + at, rows, args.key_dim, queries + at);
  }
  alignas(64) float rescale[kLanes];
  for (size_t i = 0; i < args.page_count; ++i) {
    const size_t position = args.first_position + i * kPageTokens;
    const uint8_t* values = args.pages[i] + kPageTokens * args.key_dim * 4 / Page::kParts;
    if (args.value_in_key) {
      Page::take_values(args.pages[i], args.key_dim, args.value_dim, taken);
      values = taken;
    }
    for (size_t t = 0; t < tiles; ++t) {
      const size_t row = args.rows * t / tiles;
      const size_t rows = args.rows * (t + 1) / tiles - row;
      // Before anything is visible a page adds zeros to zeros.
      if (smallest(args.visible_begin + row, rows) >= position + kPageTokens) continue;
      kAttendTile<Page>[rows](Tile{
          .keys = args.pages[i],
          .values = values,
          .next = args.pages[i + 1 < args.page_count ? i + 1 : i],
          .key_dim = args.key_dim,
          .value_dim = args.value_dim,
          .softcap = args.softcap,
          .softmax = {.rows = rows,
                      .position = position,
                      .begin = args.visible_begin + row,
                      .end = args.visible_end + row,
                      .max = args.max + row,
                      .sums = sums + row * kLanes,
                      .rescale = rescale},
          .queries = queries + row * args.key_dim,
          .acc = args.acc + row * args.value_dim,
          .weights = weights,
      });
    }
  }
  for (size_t r = 0; r < args.rows; ++r) {
    args.sum[r] = _mm512_reduce_add_ps(_mm512_loadu_ps(sums + r * kLanes));
  }
}

}  // namespace

void attend_bf16(const AttendArgs& args) { attend<BFloat16Page>(args); }

void fill_attend(Kernels& kernels) {
  kernels.attend[static_cast<size_t>(KvFormat::kBF16)] = attend_bf16;
  kernels.attend[static_cast<size_t>(KvFormat::kF32)] = attend<Float32Page>;
}

}  // namespace kvikk::avx512
