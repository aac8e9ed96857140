// Attention over KV pages for AVX2 with FMA, decode and prefill alike. Rows (queries that share the
// KV head) are taken in tiles of up to 6: a tile shares every load of a key or value line. All
// arithmetic is float32; bfloat16 keys and values are widened in registers, which is exact.
//
// Row invariance: each row has its own accumulators, and the order of the operations on them does
// not depend on the size of the tile.

#include "kernels/avx2_softmax.h"
#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_attend(Kernels& kernels);

namespace {

constexpr size_t kHalfLine = 32;
constexpr size_t kLine = 64;
constexpr size_t kTileRows = 6;

// A line holds 16 lanes x kParts consecutive steps of the sum: dims of a key, tokens of a value.
struct BFloat16Page {
  static constexpr size_t kParts = 2;
  template <size_t kPart>
  static __m256 part(const uint8_t* half_line) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(half_line));
    if constexpr (kPart == 0) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    } else {
      return _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-65536)));
    }
  }
  // The first value_dim dims of the keys, laid out as values: [16 tokens][2 dims] lines become
  // [16 dims][2 tokens] lines.
  static void take_values(const uint8_t* keys, size_t key_dim, size_t value_dim, uint8_t* values) {
    for (size_t token = 0; token < kPageTokens; token += 2) {
      const uint8_t* from = keys + token / 16 * 32 * key_dim + token % 16 * 4;
      uint8_t* to = values + token * value_dim * 2;
      for (size_t d = 0; d < value_dim; d += 2) {
        uint32_t even = 0;
        uint32_t odd = 0;
        __builtin_memcpy(&even, from + d * 32, 4);
        __builtin_memcpy(&odd, from + d * 32 + 4, 4);
        const uint32_t low = (even & 0xffffu) | odd << 16;
        const uint32_t high = even >> 16 | (odd & 0xffff0000u);
        __builtin_memcpy(to + d * 4, &low, 4);
        __builtin_memcpy(to + d * 4 + 4, &high, 4);
      }
    }
  }
};

struct Float32Page {
  static constexpr size_t kParts = 1;
  template <size_t kPart>
  static __m256 part(const uint8_t* half_line) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(half_line));
  }
  static void take_values(const uint8_t* keys, size_t key_dim, size_t value_dim, uint8_t* values) {
    for (size_t token = 0; token < kPageTokens; ++token) {
      const uint8_t* from = keys + token / 16 * key_dim * kLine + token % 16 * 4;
      uint8_t* to = values + token * value_dim * 4;
      for (size_t d = 0; d < value_dim; ++d) __builtin_memcpy(to + d * 4, from + d * kLine, 4);
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
  size_t rows;
  size_t position;        // of the page's first token
  const float* queries;   // [key_dim][rows]
  const uint32_t* begin;  // [rows]
  const uint32_t* end;    // [rows]
  float* max;             // [rows]
  float* sums;            // [rows][8 lanes]
  float* acc;             // [rows][value_dim]
  float* weights;         // [kTileRows][64]: scores, then weights
  float* rescale;         // [8]: what the page's maximum does to the sums so far
};

// One step of a tile's sums: 8 kHalves lanes of a line (or of kHalves / 2 lines, `stride` bytes
// apart) times one number a row, the numbers `factor_stride` apart.
template <class Page, size_t kPart, size_t kRows, size_t kHalves>
__attribute__((always_inline)) inline void step(const uint8_t* lines, size_t stride,
                                                const float* factors, size_t factor_stride,
                                                __m256 (&sum)[kRows][kHalves]) {
  __m256 factor[kRows];
  if constexpr (kRows <= 3) {  // the numbers stay in registers, line halves pass by
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) factor[r] = _mm256_broadcast_ss(factors + r * factor_stride);
#pragma GCC unroll 16
    for (size_t h = 0; h < kHalves; ++h) {
      const __m256 v = Page::template part<kPart>(lines + h / 2 * stride + h % 2 * kHalfLine);
#pragma GCC unroll 16
      for (size_t r = 0; r < kRows; ++r) sum[r][h] = _mm256_fmadd_ps(v, factor[r], sum[r][h]);
    }
  } else {  // the halves stay, the numbers pass by
    __m256 v[kHalves];
#pragma GCC unroll 16
    for (size_t h = 0; h < kHalves; ++h) {
      v[h] = Page::template part<kPart>(lines + h / 2 * stride + h % 2 * kHalfLine);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      factor[r] = _mm256_broadcast_ss(factors + r * factor_stride);
#pragma GCC unroll 16
      for (size_t h = 0; h < kHalves; ++h) {
        sum[r][h] = _mm256_fmadd_ps(v[h], factor[r], sum[r][h]);
      }
    }
  }
}

// Scores of kBlocks blocks of 16 tokens: key lines are read once for all rows.
template <class Page, size_t kRows, size_t kBlocks>
void score_blocks(const Tile& tile, size_t block) {
  const size_t lines = tile.key_dim / Page::kParts;
  const uint8_t* keys = tile.keys + block * lines * kLine;
  const uint8_t* ahead = keys + kPageTokens / 16 * lines * kLine;  // this page's values
  const float* query = tile.queries;
  __m256 sum[kRows][2 * kBlocks];
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t h = 0; h < 2 * kBlocks; ++h) sum[r][h] = _mm256_setzero_ps();
  }
  for (size_t i = 0; i < lines; ++i) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + b * lines * kLine), _MM_HINT_T1);
    }
    step<Page, 0>(keys, lines * kLine, query, 1, sum);
    if constexpr (Page::kParts == 2) step<Page, 1>(keys, lines * kLine, query + kRows, 1, sum);
    keys += kLine;
    ahead += kLine;
    query += Page::kParts * kRows;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t h = 0; h < 2 * kBlocks; ++h) {
      _mm256_storeu_ps(tile.weights + r * kPageTokens + block * 16 + h * kLanes, sum[r][h]);
    }
  }
}

// Scores to weights; updates maximum and sums; leaves the factor for acc in tile.rescale.
void weigh(const Tile& tile) {
  alignas(32) float shift[kLanes] = {};
  __m256 added[kTileRows];
  for (size_t r = 0; r < tile.rows; ++r) {
    const Visible visible = visible_tokens(tile.position, tile.begin[r], tile.end[r]);
    const float max = weigh_row(tile.weights + r * kPageTokens, visible, tile.max[r], added[r]);
    shift[r] = tile.max[r] - max;
    tile.max[r] = max;
  }
  _mm256_storeu_ps(tile.rescale, exp_f32(_mm256_load_ps(shift)));
  for (size_t r = 0; r < tile.rows; ++r) {
    float* sums = tile.sums + r * kLanes;
    const __m256 rescale = _mm256_broadcast_ss(tile.rescale + r);
    _mm256_storeu_ps(sums, _mm256_fmadd_ps(_mm256_loadu_ps(sums), rescale, added[r]));
  }
}

// acc = acc * rescale + weights * values for kBlocks blocks of 16 dims.
template <class Page, size_t kRows, size_t kBlocks>
void add_blocks(const Tile& tile, size_t block) {
  const size_t stride = tile.value_dim / 16 * kLine;  // from one step of tokens to the next
  const uint8_t* values = tile.values + block * kLine;
  const uint8_t* ahead = tile.next + block * kLine;  // the next page's keys
  const float* weight = tile.weights;
  float* acc = tile.acc + block * 16;
  __m256 sum[kRows][2 * kBlocks];
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
    const __m256 rescale = _mm256_broadcast_ss(tile.rescale + r);
#pragma GCC unroll 16
    for (size_t h = 0; h < 2 * kBlocks; ++h) {
      sum[r][h] = _mm256_mul_ps(_mm256_loadu_ps(acc + r * tile.value_dim + h * kLanes), rescale);
    }
  }
  for (size_t i = 0; i < kPageTokens / Page::kParts; ++i) {
#pragma GCC unroll 16
    for (size_t b = 0; b < kBlocks; ++b) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + b * kLine), _MM_HINT_T1);
    }
    step<Page, 0>(values, kLine, weight, kPageTokens, sum);
    if constexpr (Page::kParts == 2) step<Page, 1>(values, kLine, weight + 1, kPageTokens, sum);
    values += stride;
    ahead += stride;
    weight += Page::kParts;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (size_t h = 0; h < 2 * kBlocks; ++h) {
      _mm256_storeu_ps(acc + r * tile.value_dim + h * kLanes, sum[r][h]);
    }
  }
}

// kRows x 2 kBlocks accumulators, and what passes by, fit the 16 registers.
template <class Page, size_t kRows>
void attend_tile(const Tile& tile) {
  constexpr size_t kBlocks = kRows <= 3 ? 2 : 1;
  for (size_t block = 0; block < kPageTokens / 16; block += kBlocks) {
    score_blocks<Page, kRows, kBlocks>(tile, block);
  }
  if (tile.softcap > 0.0f) cap_scores(tile.weights, kRows * kPageTokens, tile.softcap);
  weigh(tile);
  const size_t blocks = tile.value_dim / 16;
  size_t block = 0;
  for (; block + kBlocks <= blocks; block += kBlocks) {
    add_blocks<Page, kRows, kBlocks>(tile, block);
  }
  if constexpr (kBlocks > 1) {
    if (block < blocks) add_blocks<Page, kRows, 1>(tile, block);
  }
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
};

// Rows of one tile in the order that a tile reads them, [dim][rows].
void transpose_queries(const float* queries, size_t rows, size_t dim, float* out) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t d = 0; d < dim; ++d) out[d * rows + r] = queries[r * dim + d];
  }
}

uint32_t smallest(const uint32_t* values, size_t count) {
  uint32_t result = values[0];
  for (size_t i = 1; i < count; ++i) result = values[i] < result ? values[i] : result;
  return result;
}

template <class Page>
void attend(const AttendArgs& args) {
  if (args.rows == 0) return;
  const size_t tiles = (args.rows + kTileRows - 1) / kTileRows;  // rows are dealt out evenly
  float* weights = reinterpret_cast<float*>(args.scratch);       // [kTileRows][64]
  float* sums = weights + kTileRows * kPageTokens;               // [rows][8]
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
  alignas(32) float rescale[kLanes];
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
          .rows = rows,
          .position = position,
          .queries = queries + row * args.key_dim,
          .begin = args.visible_begin + row,
          .end = args.visible_end + row,
          .max = args.max + row,
          .sums = sums + row * kLanes,
          .acc = args.acc + row * args.value_dim,
          .weights = weights,
          .rescale = rescale,
      });
    }
  }
  for (size_t r = 0; r < args.rows; ++r) {
    args.sum[r] = reduce_add(_mm256_loadu_ps(sums + r * kLanes));
  }
}

}  // namespace

void fill_attend(Kernels& kernels) {
  kernels.attend[static_cast<size_t>(KvFormat::kBF16)] = attend<BFloat16Page>;
  kernels.attend[static_cast<size_t>(KvFormat::kF32)] = attend<Float32Page>;
}

}  // namespace kvikk::avx2
