// Attention over pages of bfloat16 keys and values on the tile unit: a page lies in memory as the
// tile unit reads its B operand, so keys and values go from memory to tiles as they are. A row of a
// tile is a query; 16 of them meet 16 tokens (scores) or 16 dims (values) in one product.
//
// Queries and softmax weights are float32. Each is split in two bfloat16 parts, x = high + low with
// a rest of 2^-17 |x|, and both parts are multiplied: rounding a query to its high part alone would
// move scores by as much as rounding the keys did. Products are exact, sums are float32.
//
// Row invariance: the tile unit computes every row on its own, in the same order of steps whatever
// the other rows hold; a decode step of one row takes the same way as a prefill tile.

#include "kernels/amx_tiles.h"
#include "kernels/avx512_softmax.h"
#include "kernels/avx512_values.h"
#include "kernels/kernels.h"

namespace kvikk::amx {

void fill_attend(Kernels& kernels);

namespace {

using namespace avx512;  // NOLINT: softmax, internal to this file

constexpr size_t kTileRows = 16;
constexpr size_t kLine = 64;        // bytes
constexpr size_t kStepDims = 32;    // of a key: 16 lines of dim pairs
constexpr size_t kStepTokens = 32;  // of a value: 16 lines of token pairs

// Tiles 0 to 3 accumulate, the others hold operands.
constexpr int kHigh = 4, kLow = 5, kB = 6;

// The rows of A and C; everything else is full tiles.
void configure(size_t rows) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = kLine;
    config.rows[t] = static_cast<uint8_t>(t < kB ? rows : kTileRows);
  }
  load_config(config);
}

template <int kSum, int kA, int kColumns>
inline void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kColumns));
}

// 16 floats as high and low bfloat16 parts.
struct Parts {
  __m256i high, low;
};

Parts split(__m512 x) {
  const __m256i high = (__m256i)_mm512_cvtneps_pbh(x);
  const __m512 rounded = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
  return {high, (__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(x, rounded))};
}

// A tile of queries, ready as A operands, and what its softmax has so far.
struct Tile {
  const uint8_t* keys;
  const uint8_t* values;
  // Of the page after it (or the same), prefetched along with this one's steps.
  const uint8_t* next_keys;
  const uint8_t* next_values;
  size_t key_dim;
  size_t value_dim;
  RunningSoftmax softmax;
  const uint16_t* high;  // [key_dim / 32][16 rows][32 dims]
  const uint16_t* low;
  float* acc;  // [rows][value_dim]
};

// Between the phases of a page.
struct alignas(64) PageScratch {
  float scores[kTileRows][kPageTokens];
  uint16_t high[kTileRows][kPageTokens];  // weights
  uint16_t low[kTileRows][kPageTokens];
  float products[2][kTileRows][kLanes];
  float rescale[kLanes];
};

// 16 lines, into the second-level cache.
inline void prefetch(const uint8_t* from, size_t stride) {
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(from + i * stride), _MM_HINT_T1);
  }
}

template <int kBlock>
inline void score_block(const uint8_t* keys, const uint8_t* next) {
  prefetch(next, kLine);
  load_tile<kB + kBlock % 2>(keys, kLine);
  multiply_tiles<kBlock, kHigh, kB + kBlock % 2>();
  multiply_tiles<kBlock, kLow, kB + kBlock % 2>();
}

void score(const Tile& tile, PageScratch& s) {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
  const size_t block_bytes = tile.key_dim / 2 * kLine;
  constexpr size_t kStepBytes = kStepDims / 2 * kLine;
  for (size_t step = 0; step < tile.key_dim / kStepDims; ++step) {
    load_tile<kHigh>(tile.high + step * kTileRows * kStepDims, kLine);
    load_tile<kLow>(tile.low + step * kTileRows * kStepDims, kLine);
    const uint8_t* keys = tile.keys + step * kStepBytes;
    const uint8_t* next = tile.next_keys + step * kStepBytes;
    score_block<0>(keys, next);
    score_block<1>(keys + block_bytes, next + block_bytes);
    score_block<2>(keys + 2 * block_bytes, next + 2 * block_bytes);
    score_block<3>(keys + 3 * block_bytes, next + 3 * block_bytes);
  }
  store_tile<0>(&s.scores[0][0], sizeof s.scores[0]);
  store_tile<1>(&s.scores[0][kLanes], sizeof s.scores[0]);
  store_tile<2>(&s.scores[0][2 * kLanes], sizeof s.scores[0]);
  store_tile<3>(&s.scores[0][3 * kLanes], sizeof s.scores[0]);
}

// Weights in two parts, as A operands.
void split_weights(size_t rows, PageScratch& s) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t t = 0; t < kPageTokens; t += kLanes) {
      const Parts parts = split(_mm512_load_ps(s.scores[r] + t));
      _mm256_store_si256(reinterpret_cast<__m256i*>(s.high[r] + t), parts.high);
      _mm256_store_si256(reinterpret_cast<__m256i*>(s.low[r] + t), parts.low);
    }
  }
}

// Weights x values for 16 dims, into accumulator kSum; the weights lie in tiles 2 to 5.
template <int kSum>
inline void value_block(const uint8_t* values, const uint8_t* next, size_t stride, PageScratch& s) {
  prefetch(next, stride);
  prefetch(next + kStepTokens / 2 * stride, stride);
  zero_tile<kSum>();
  load_tile<kB>(values, stride);
  load_tile<kB + 1>(values + kStepTokens / 2 * stride, stride);
  multiply_tiles<kSum, 2, kB>();
  multiply_tiles<kSum, 4, kB>();
  multiply_tiles<kSum, 3, kB + 1>();
  multiply_tiles<kSum, 5, kB + 1>();
  store_tile<kSum>(s.products[kSum], kLine);
}

inline void add_products(const Tile& tile, const PageScratch& s, size_t set, size_t block) {
  float* acc = tile.acc + block * kLanes;
  for (size_t r = 0; r < tile.softmax.rows; ++r, acc += tile.value_dim) {
    const __m512 product = _mm512_load_ps(s.products[set][r]);
    const __m512 rescale = _mm512_set1_ps(s.rescale[r]);
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(_mm512_loadu_ps(acc), rescale, product));
  }
}

// acc = acc * rescale + weights * values. The vector units add one block while the tile unit has
// the next.
void add_values(const Tile& tile, PageScratch& s) {
  const size_t blocks = tile.value_dim / kLanes;  // even
  const size_t stride = blocks * kLine;
  const uint8_t* values = tile.values;
  load_tile<2>(s.high[0], sizeof s.high[0]);
  load_tile<3>(s.high[0] + kStepTokens, sizeof s.high[0]);
  load_tile<4>(s.low[0], sizeof s.low[0]);
  load_tile<5>(s.low[0] + kStepTokens, sizeof s.low[0]);
  const uint8_t* next = tile.next_values;
  value_block<0>(values, next, stride, s);
  for (size_t block = 0; block < blocks; block += 2) {
    const size_t at = (block + 1) * kLine;
    value_block<1>(values + at, next + at, stride, s);
    add_products(tile, s, 0, block);
    if (block + 2 < blocks) value_block<0>(values + at + kLine, next + at + kLine, stride, s);
    add_products(tile, s, 1, block + 1);
  }
}

// Queries [rows, dim] as A operands; rows up to 16 are zeros.
void split_queries(const float* queries, size_t rows, size_t dim, uint16_t* high, uint16_t* low) {
  for (size_t d = 0; d < dim; d += kLanes) {
    for (size_t r = 0; r < kTileRows; ++r) {
      const size_t at = d / kStepDims * kTileRows * kStepDims + r * kStepDims + d % kStepDims;
      const Parts parts =
          split(r < rows ? _mm512_loadu_ps(queries + r * dim + d) : _mm512_setzero_ps());
      _mm256_store_si256(reinterpret_cast<__m256i*>(high + at), parts.high);
      _mm256_store_si256(reinterpret_cast<__m256i*>(low + at), parts.low);
    }
  }
}

void attend_tiles(const AttendArgs& args) {
  const size_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  const size_t tile_values = kTileRows * args.key_dim;
  auto& page_scratch = *reinterpret_cast<PageScratch*>(args.scratch);
  float* sums = reinterpret_cast<float*>(args.scratch + sizeof(PageScratch));  // [rows][16]
  auto* queries = reinterpret_cast<uint16_t*>(sums + tiles * kTileRows * kLanes);
  // [64, value_dim] as a page's values, where a page has none of its own; on a line
  auto* taken = reinterpret_cast<uint8_t*>(queries + 2 * tiles * tile_values);
  for (size_t i = 0; i < args.rows; ++i) args.max[i] = kNothingVisible;
  for (size_t i = 0; i < args.rows * kLanes; ++i) sums[i] = 0.0f;
  for (size_t i = 0; i < args.rows * args.value_dim; ++i) args.acc[i] = 0.0f;
  for (size_t t = 0; t < tiles; ++t) {
    const size_t row = t * kTileRows;
    const size_t rows = args.rows - row < kTileRows ? args.rows - row : kTileRows;
    uint16_t* high = queries + 2 * t * tile_values;
    split_queries(args.queries + row * args.key_dim, rows, args.key_dim, high, high + tile_values);
  }
  configure(args.rows < kTileRows ? args.rows : kTileRows);
  const size_t key_bytes = kv_part_bytes(KvFormat::kBF16, args.key_dim);
  for (size_t i = 0; i < args.page_count; ++i) {
    const size_t position = args.first_position + i * kPageTokens;
    const uint8_t* next = args.pages[i + 1 < args.page_count ? i + 1 : i];
    const uint8_t* values = args.pages[i] + key_bytes;
    const uint8_t* next_values = next + key_bytes;
    if (args.value_in_key) {
      take_bf16_values(args.pages[i], args.key_dim, args.value_dim, taken);
      values = next_values = taken;  // no part of the next page
    }
    for (size_t t = 0; t < tiles; ++t) {
      const size_t row = t * kTileRows;
      const size_t rows = args.rows - row < kTileRows ? args.rows - row : kTileRows;
      // Before anything is visible a page adds zeros to zeros.
      if (smallest(args.visible_begin + row, rows) >= position + kPageTokens) continue;
      const uint16_t* high = queries + 2 * t * tile_values;
      const Tile tile = {
          .keys = args.pages[i],
          .values = values,
          .next_keys = next,
          .next_values = next_values,
          .key_dim = args.key_dim,
          .value_dim = args.value_dim,
          .softmax = {.rows = rows,
                      .position = position,
                      .begin = args.visible_begin + row,
                      .end = args.visible_end + row,
                      .max = args.max + row,
                      .sums = sums + row * kLanes,
                      .rescale = page_scratch.rescale},
          .high = high,
          .low = high + tile_values,
          .acc = args.acc + row * args.value_dim,
      };
      score(tile, page_scratch);
      if (args.softcap > 0.0f) {
        cap_scores(page_scratch.scores[0], rows * kPageTokens, args.softcap);
      }
      weigh_rows<kTileRows>(tile.softmax, page_scratch.scores[0]);
      split_weights(rows, page_scratch);
      add_values(tile, page_scratch);
    }
  }
  release_tiles();
  for (size_t r = 0; r < args.rows; ++r) {
    args.sum[r] = _mm512_reduce_add_ps(_mm512_loadu_ps(sums + r * kLanes));
  }
}

// Head sizes that are no multiple of a tile's step take the AVX-512 way.
void attend(const AttendArgs& args) {
  if (args.rows == 0) return;
  if (args.key_dim % kStepDims != 0 || args.value_dim % kStepDims != 0) {
    avx512::attend_bf16(args);
  } else {
    attend_tiles(args);
  }
}

}  // namespace

void fill_attend(Kernels& kernels) {
  kernels.attend[static_cast<size_t>(KvFormat::kBF16)] = attend;
}

}  // namespace kvikk::amx
