// Search over coded vectors on the tile unit, for batches of 16 queries and more: 64 dims of a
// block, decoded, are a B operand as they are (kernels/search.h), 16 queries x 64 dims an A
// operand. Sums are the same integers as everywhere.

#include <immintrin.h>

#include <cstring>

#include "kernels/amx_tiles.h"
#include "kernels/avx512_search_decode.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {
void search_scan(const SearchScanArgs& args);  // avx512_search.cpp
}

namespace kvikk::amx {

void fill_search(Kernels& kernels);

namespace {

using namespace avx512;  // NOLINT: decoding, internal to this file

constexpr size_t kTileRows = 16;
constexpr size_t kLine = 64;  // bytes
constexpr size_t kTileBytes = kTileRows * kLine;
constexpr size_t kTilesMax = kSearchQueriesMax / kTileRows;

// Tiles 0 to 3 accumulate, one for 16 queries.
constexpr int kB = 4, kA = 5;

void configure() {
  TileConfig config;
  for (int t = 0; t < 6; ++t) {
    config.column_bytes[t] = kLine;
    config.rows[t] = kTileRows;
  }
  load_config(config);
}

template <int kSum>
inline void multiply(const int8_t* queries, size_t stride) {
  load_tile<kA>(queries, stride);
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

template <int kBits>
inline void decode_step(const SearchPlanes& planes, size_t step, const LevelTables<kBits>& table,
                        uint8_t* out) {
  __m512i levels[4];
  decode_half<kBits, 0>(planes, step, table, levels);
  for (size_t j = 0; j < 4; ++j) _mm512_store_si512(out + j * kLine, levels[j]);
  decode_half<kBits, 1>(planes, step, table, levels);
  for (size_t j = 0; j < 4; ++j) _mm512_store_si512(out + (4 + j) * kLine, levels[j]);
}

// Adds 64 dims at a time; two buffers, so that one is filled while the other is read.
template <int kBits, size_t kTiles>
void add_group(const SearchScanArgs& args, size_t block, const SearchGroup& group, size_t dim,
               uint8_t* scratch) {
  const SearchPlanes planes = {args.top + block * args.top_stride + group.top,
                               args.rest + block * args.rest_stride + group.rest, group.dims};
  const LevelTables<kBits> table(group.table);
  const size_t steps = group.dims / kSearchDims;
  for (size_t step = 0; step < steps; step += 2) {
    uint8_t* const levels = scratch + step / 2 % 2 * kTileBytes;
    decode_step<kBits>(planes, step, table, levels);
    if (step + 1 < steps) {
      decode_step<kBits>(planes, step + 1, table, levels + kTileBytes / 2);
    } else {  // whatever the queries have there counts nothing
      std::memset(levels + kTileBytes / 2, 0, kTileBytes / 2);
    }
    load_tile<kB>(levels, kLine);
    const int8_t* queries = args.queries + dim + step * kSearchDims;
    const size_t next = kTileRows * args.query_stride;
    multiply<0>(queries, args.query_stride);
    if constexpr (kTiles > 1) multiply<1>(queries + next, args.query_stride);
    if constexpr (kTiles > 2) multiply<2>(queries + 2 * next, args.query_stride);
    if constexpr (kTiles > 3) multiply<3>(queries + 3 * next, args.query_stride);
  }
}

template <size_t kTiles>
void add_any_group(const SearchScanArgs& args, size_t block, const SearchGroup& group, size_t dim,
                   uint8_t* scratch) {
  switch (group.bits) {
    case 1:
      return add_group<1, kTiles>(args, block, group, dim, scratch);
    case 2:
      return add_group<2, kTiles>(args, block, group, dim, scratch);
    case 3:
      return add_group<3, kTiles>(args, block, group, dim, scratch);
    case 4:
      return add_group<4, kTiles>(args, block, group, dim, scratch);
    case 5:
      return add_group<5, kTiles>(args, block, group, dim, scratch);
    case 6:
      return add_group<6, kTiles>(args, block, group, dim, scratch);
    default:
      return add_group<8, kTiles>(args, block, group, dim, scratch);
  }
}

// Scales the sums of a class: dots [queries, 16].
void finish_class(const SearchScanArgs& args, size_t block, size_t number, size_t queries,
                  const int32_t* dots) {
  for (size_t q = 0; q < queries; ++q) {
    const size_t at = q * args.classes + number;
    const __m512i dot = _mm512_sub_epi32(_mm512_load_si512(dots + q * kSearchBlock),
                                         _mm512_set1_epi32(128 * args.code_sums[at]));
    float* const out = args.sums + q * args.sum_stride + block * kSearchBlock;
    const __m512 before = number == 0 ? _mm512_set1_ps(args.first[q]) : _mm512_loadu_ps(out);
    const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(args.steps[at]));
    _mm512_storeu_ps(out, _mm512_add_ps(before, product));
  }
}

template <size_t kTiles>
void zero_sums() {
  zero_tile<0>();
  if constexpr (kTiles > 1) zero_tile<1>();
  if constexpr (kTiles > 2) zero_tile<2>();
  if constexpr (kTiles > 3) zero_tile<3>();
}

template <size_t kTiles>
void scan_tiles(const SearchScanArgs& args) {
  alignas(64) uint8_t scratch[2 * kTileBytes];
  alignas(64) int32_t dots[kTilesMax * kTileRows * kSearchBlock];
  constexpr size_t kTileDots = kTileRows * kSearchBlock;
  for (size_t block = 0; block < args.blocks; ++block) {
    zero_sums<kTiles>();
    size_t dim = 0;
    size_t number = 0;
    for (size_t g = 0; g < args.group_count; ++g) {
      const SearchGroup& group = args.groups[g];
      add_any_group<kTiles>(args, block, group, dim, scratch);
      dim += group.dims;
      if (!group.ends_class) continue;
      store_tile<0>(dots, kLine);
      if constexpr (kTiles > 1) store_tile<1>(dots + kTileDots, kLine);
      if constexpr (kTiles > 2) store_tile<2>(dots + 2 * kTileDots, kLine);
      if constexpr (kTiles > 3) store_tile<3>(dots + 3 * kTileDots, kLine);
      finish_class(args, block, number, kTiles * kTileRows, dots);
      if (++number < args.classes) zero_sums<kTiles>();
    }
  }
}

// The queries that fill no tile.
SearchScanArgs last_queries(const SearchScanArgs& args, size_t first) {
  SearchScanArgs rest = args;
  rest.queries += first * args.query_stride;
  rest.code_sums += first * args.classes;
  rest.steps += first * args.classes;
  rest.first += first;
  rest.sums += first * args.sum_stride;
  rest.query_count -= first;
  return rest;
}

void scan(const SearchScanArgs& args) {
  const size_t tiles = args.query_count / kTileRows;
  if (tiles > 0) {
    configure();
    if (tiles == 1) scan_tiles<1>(args);
    if (tiles == 2) scan_tiles<2>(args);
    if (tiles == 3) scan_tiles<3>(args);
    if (tiles == 4) scan_tiles<4>(args);
    release_tiles();
  }
  if (args.query_count % kTileRows != 0) search_scan(last_queries(args, tiles * kTileRows));
}

}  // namespace

void fill_search(Kernels& kernels) { kernels.search_scan = scan; }

}  // namespace kvikk::amx
