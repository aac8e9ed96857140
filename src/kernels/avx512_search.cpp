// Search over coded vectors for AVX-512: levels come out of registers (avx512_search_decode.h) and
// are shared by a tile of queries; vpdpbusd multiplies 16 vectors x 4 dims with a query's 4 codes.
// All sums of a block stay in registers until a class ends.

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "kernels/avx512_search_decode.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_search(Kernels& kernels);
void search_scan(const SearchScanArgs& args);  // also for what the tile unit leaves

namespace {

constexpr size_t kLanes = 16;

inline void add_dot(__m512i& sums, __m512i levels, __m512i codes) {
  asm("vpdpbusd %1, %2, %0" : "+v"(sums) : "v"(codes), "v"(levels));
}

inline __m512i four_codes(const int8_t* query) {
  int32_t codes = 0;
  std::memcpy(&codes, query, sizeof codes);
  return _mm512_set1_epi32(codes);
}

// kBlocks blocks from `block` on and kQueries queries from `query` on.
struct Place {
  size_t block;
  size_t query;
};

template <size_t kBlocks>
struct PlanesOf {
  SearchPlanes block[kBlocks];
};

template <int kBits, int kHalf, size_t kQueries, size_t kBlocks, size_t kChains>
inline __attribute__((always_inline)) void add_half(const PlanesOf<kBlocks>& planes, size_t step,
                                                    const LevelTables<kBits>& table,
                                                    const int8_t* queries, size_t stride,
                                                    __m512i (&sums)[kBlocks][kQueries][kChains]) {
  __m512i levels[kBlocks][4];
#pragma GCC unroll 4
  for (size_t b = 0; b < kBlocks; ++b) {
    decode_half<kBits, kHalf>(planes.block[b], step, table, levels[b]);
  }
  const int8_t* codes = queries + step * 32 + kHalf * 16;
#pragma GCC unroll 8
  for (size_t q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const __m512i four = four_codes(codes + q * stride + 4 * j);
#pragma GCC unroll 4
      for (size_t b = 0; b < kBlocks; ++b) add_dot(sums[b][q][j % kChains], levels[b][j], four);
    }
  }
}

constexpr size_t kPrefetchBytes = 3072;

// Asks for what a step some blocks ahead will read. The planes of the next block follow on those of
// this one. Always inline: g++ 12 takes a function that only prefetches for one that does nothing.
template <int kBits>
inline __attribute__((always_inline)) void prefetch(const SearchPlanes& planes, size_t step) {
  constexpr size_t kLines = kBits == 1 ? 1 : 2;
  const uint8_t* top = planes.top + step * kLines * 64 + kPrefetchBytes;
  for (size_t i = 0; i < kLines; ++i) _mm_prefetch(top + i * 64, _MM_HINT_T0);
  constexpr size_t kRestLines = kBits - kLines;  // a bit of 32 dims is a line
  const uint8_t* rest = planes.rest + step * kRestLines * 64 + kPrefetchBytes;
  for (size_t i = 0; i < kRestLines; ++i) _mm_prefetch(rest + i * 64, _MM_HINT_T0);
}

template <int kBits, size_t kQueries, size_t kBlocks, size_t kChains>
inline __attribute__((always_inline)) void add_group(const SearchScanArgs& args, Place at,
                                                     const SearchGroup& group, size_t dim,
                                                     __m512i (&sums)[kBlocks][kQueries][kChains]) {
  PlanesOf<kBlocks> planes;
#pragma GCC unroll 4
  for (size_t b = 0; b < kBlocks; ++b) {
    planes.block[b] = {args.top + (at.block + b) * args.top_stride + group.top,
                       args.rest + (at.block + b) * args.rest_stride + group.rest, group.dims};
  }
  const LevelTables<kBits> table(group.table);
  const int8_t* queries = args.queries + at.query * args.query_stride + dim;
  for (size_t step = 0; step < group.dims / kSearchDims; ++step) {
    if constexpr (kBlocks == 1) prefetch<kBits>(planes.block[0], step);
    add_half<kBits, 0>(planes, step, table, queries, args.query_stride, sums);
    add_half<kBits, 1>(planes, step, table, queries, args.query_stride, sums);
  }
}

template <size_t kQueries, size_t kBlocks, size_t kChains>
inline __attribute__((always_inline)) void start(const SearchScanArgs& args, Place at,
                                                 size_t class_number,
                                                 __m512i (&sums)[kBlocks][kQueries][kChains]) {
#pragma GCC unroll 8
  for (size_t q = 0; q < kQueries; ++q) {
    const int32_t sum = args.code_sums[(at.query + q) * args.classes + class_number];
#pragma GCC unroll 4
    for (size_t b = 0; b < kBlocks; ++b) {
      sums[b][q][0] = _mm512_set1_epi32(-128 * sum);
#pragma GCC unroll 4
      for (size_t c = 1; c < kChains; ++c) sums[b][q][c] = _mm512_setzero_si512();
    }
  }
}

template <size_t kQueries, size_t kBlocks, size_t kChains>
void scan_tile(const SearchScanArgs& args, Place at) {
  __m512i sums[kBlocks][kQueries][kChains];
  start(args, at, 0, sums);
  size_t dim = 0;
  size_t number = 0;  // of the class
  for (size_t g = 0; g < args.group_count; ++g) {
    const SearchGroup& group = args.groups[g];
    switch (group.bits) {
      case 1:
        add_group<1>(args, at, group, dim, sums);
        break;
      case 2:
        add_group<2>(args, at, group, dim, sums);
        break;
      case 3:
        add_group<3>(args, at, group, dim, sums);
        break;
      case 4:
        add_group<4>(args, at, group, dim, sums);
        break;
      case 5:
        add_group<5>(args, at, group, dim, sums);
        break;
      case 6:
        add_group<6>(args, at, group, dim, sums);
        break;
      default:
        add_group<8>(args, at, group, dim, sums);
        break;
    }
    dim += group.dims;
    if (!group.ends_class) continue;
#pragma GCC unroll 8
    for (size_t q = 0; q < kQueries; ++q) {
      const __m512 step = _mm512_set1_ps(args.steps[(at.query + q) * args.classes + number]);
      const __m512 first = _mm512_set1_ps(args.first[at.query + q]);
#pragma GCC unroll 4
      for (size_t b = 0; b < kBlocks; ++b) {
        float* out = args.sums + (at.query + q) * args.sum_stride + (at.block + b) * kLanes;
        const __m512 before = number == 0 ? first : _mm512_loadu_ps(out);
        __m512i dot = sums[b][q][0];
#pragma GCC unroll 4
        for (size_t c = 1; c < kChains; ++c) dot = _mm512_add_epi32(dot, sums[b][q][c]);
        const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), step);
        _mm512_storeu_ps(out, _mm512_add_ps(before, product));
      }
    }
    if (++number < args.classes) start(args, at, number, sums);
  }
}

template <size_t kQueries, size_t kBlocks, size_t kChains>
void scan_queries(const SearchScanArgs& args, size_t query) {
  size_t block = 0;
  for (; block + kBlocks <= args.blocks; block += kBlocks) {
    scan_tile<kQueries, kBlocks, kChains>(args, {block, query});
  }
  for (; block < args.blocks; ++block) scan_tile<kQueries, 1, kChains>(args, {block, query});
}

void select(const SearchSelectArgs& args) {
  const __m512 constant = _mm512_set1_ps(args.constant);
  const __m512 threshold = _mm512_set1_ps(args.threshold);
  for (size_t block = 0; block < args.blocks; ++block) {
    const size_t at = block * kLanes;
    const __m512i bits = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(args.scales + at)));
    const __m512i moved =
        _mm512_add_epi32(_mm512_slli_epi32(bits, 13), _mm512_set1_epi32(96 << 23));
    const __m512 scale =
        _mm512_castsi512_ps(_mm512_maskz_mov_epi32(_mm512_test_epi32_mask(bits, bits), moved));
    __m512 score = _mm512_mul_ps(_mm512_loadu_ps(args.sums + at), scale);
    score = _mm512_add_ps(score, constant);
    if (args.norms != nullptr) score = _mm512_sub_ps(score, _mm512_loadu_ps(args.norms + at));
    _mm512_storeu_ps(args.scores + at, score);
    args.masks[block] = static_cast<uint16_t>(_mm512_cmp_ps_mask(score, threshold, _CMP_GE_OQ));
  }
}

constexpr size_t kProductRows = 8;

template <size_t kRows>
void product_rows(const SearchProductArgs& args, size_t row) {
  for (size_t j = 0; j < args.columns; j += kLanes) {
    __m512 sums[kRows];
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_ps();
    const float* a = args.a + row * args.a_stride;
    for (size_t k = 0; k < args.k; ++k) {
      const __m512 b = _mm512_loadu_ps(args.b + k * args.b_stride + j);
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
        const __m512 product = _mm512_mul_ps(_mm512_set1_ps(a[r * args.a_stride + k]), b);
        sums[r] = _mm512_add_ps(sums[r], product);
      }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(args.out + (row + r) * args.out_stride + j, sums[r]);
    }
  }
}

void product(const SearchProductArgs& args) {
  size_t row = 0;
  for (; row + kProductRows <= args.rows; row += kProductRows) {
    product_rows<kProductRows>(args, row);
  }
  for (; row < args.rows; ++row) product_rows<1>(args, row);
}

// Of the lanes that exist when so many are left.
inline __mmask16 tail_mask(size_t left) {
  return static_cast<__mmask16>(left >= kLanes ? 0xffffu : (1u << left) - 1u);
}

// Ascending thresholds, 16 a register, NaNs (which nothing reaches) behind the last one.
template <size_t kRegisters>
struct Thresholds {
  __m512 part[kRegisters];

  explicit Thresholds(const SearchCodesArgs& args) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kRegisters; ++r) {
      const size_t first = r * kLanes;
      const size_t left = args.threshold_count > first ? args.threshold_count - first : 0;
      part[r] = _mm512_mask_loadu_ps(_mm512_set1_ps(NAN), tail_mask(left), args.thresholds + first);
    }
  }

  __m512 at(__m512i index) const {
    if constexpr (kRegisters == 1) return _mm512_permutexvar_ps(index, part[0]);
    const __m512 low = _mm512_permutex2var_ps(part[0], index, part[1 % kRegisters]);
    if constexpr (kRegisters == 2) return low;
    const __m512 high = _mm512_permutex2var_ps(part[2 % kRegisters], index, part[3 % kRegisters]);
    const __mmask16 upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(2 * kLanes));
    return _mm512_mask_blend_ps(upper, low, high);
  }
};

// find(x): the codes of 16 numbers.
template <class Find>
inline __attribute__((always_inline)) void put_codes(const SearchCodesArgs& args,
                                                     const Find& find) {
  const __m512 factor = _mm512_set1_ps(args.factor);
  for (size_t i = 0; i < args.count; i += kLanes) {
    const __mmask16 mask = tail_mask(args.count - i);
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, args.x + i), factor);
    _mm_mask_storeu_epi8(args.codes + i, mask, _mm512_cvtepi32_epi8(find(x)));
  }
}

// Halves what is left of 16 kRegisters thresholds, from the middle one on.
template <size_t kRegisters>
void search_codes(const SearchCodesArgs& args) {
  const Thresholds<kRegisters> thresholds(args);
  put_codes(args, [&](__m512 x) {
    __m512i code = _mm512_setzero_si512();
#pragma GCC unroll 6
    for (size_t half = kRegisters * kLanes / 2; half > 0; half /= 2) {
      const __m512i middle = _mm512_add_epi32(code, _mm512_set1_epi32(static_cast<int>(half) - 1));
      const __mmask16 above = _mm512_cmp_ps_mask(x, thresholds.at(middle), _CMP_GE_OQ);
      code = _mm512_mask_add_epi32(code, above, code, _mm512_set1_epi32(static_cast<int>(half)));
    }
    return code;
  });
}

// Up to three thresholds are compared one by one.
void few_codes(const SearchCodesArgs& args) {
  put_codes(args, [&](__m512 x) {
    __m512i code = _mm512_setzero_si512();
    for (size_t t = 0; t < args.threshold_count; ++t) {
      const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(args.thresholds[t]), _CMP_GE_OQ);
      code = _mm512_mask_add_epi32(code, above, code, _mm512_set1_epi32(1));
    }
    return code;
  });
}

void codes(const SearchCodesArgs& args) {
  if (args.threshold_count <= 3) return few_codes(args);
  if (args.threshold_count < kLanes) return search_codes<1>(args);
  if (args.threshold_count < 2 * kLanes) return search_codes<2>(args);
  search_codes<4>(args);
}

}  // namespace

// Few queries wait for memory: blocks are read one after the other, as the prefetcher likes it, and
// several chains of sums a block keep the multipliers busy.
void search_scan(const SearchScanArgs& args) {
  size_t query = 0;
  for (; query + 8 <= args.query_count; query += 8) scan_queries<8, 2, 1>(args, query);
  if (query + 4 <= args.query_count) {
    scan_queries<4, 1, 2>(args, query);
    query += 4;
  }
  if (query + 2 <= args.query_count) {
    scan_queries<2, 1, 4>(args, query);
    query += 2;
  }
  if (query < args.query_count) scan_queries<1, 1, 4>(args, query);
}

void fill_search(Kernels& kernels) {
  kernels.search_scan = search_scan;
  kernels.search_select = select;
  kernels.search_product = product;
  kernels.search_codes = codes;
}

}  // namespace kvikk::avx512
