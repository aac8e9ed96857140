// Search over coded vectors for AVX2. A block is two halves of 8 vectors; levels less 128 come from
// pshufb. maddubs multiplies their magnitudes (at most 128) with the query's codes under their
// signs: two products fit in 16 bits.

#include <immintrin.h>

#include <cstring>

#include "kernels/kernels.h"
#include "kernels/search.h"

namespace kvikk::avx2 {

void fill_search(Kernels& kernels);

namespace {

constexpr size_t kLanes = 8;
constexpr size_t kQueryTile = 4;
constexpr size_t kHalfLine = 32;  // bytes of a line for 8 vectors

inline __m256i load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline __m256i bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
inline __m256i masked(__m256i x, int mask) { return _mm256_and_si256(x, bytes(mask)); }
inline __m256i down(__m256i x, int by) { return _mm256_srli_epi16(x, by); }
inline __m256i up(__m256i x, int by) { return _mm256_slli_epi16(x, by); }

// A group's planes of one half block, and its table of levels less 128, 16 codes at a time.
struct Source {
  const uint8_t* top;
  const uint8_t* rest;
  size_t dims;
  unsigned bits;
  __m256i table[4];
};

Source source_of(const SearchScanArgs& args, const SearchGroup& group, size_t block, size_t half) {
  Source source;
  source.top = args.top + block * args.top_stride + group.top + half * kHalfLine;
  source.rest = args.rest + block * args.rest_stride + group.rest + half * kHalfLine;
  source.dims = group.dims;
  source.bits = group.bits;
  for (size_t i = 0; i < 4; ++i) {
    const __m128i levels = _mm_load_si128(reinterpret_cast<const __m128i*>(group.table + 16 * i));
    source.table[i] = _mm256_xor_si256(_mm256_broadcastsi128_si256(levels), bytes(0x80));
  }
  return source;
}

// Four dims' bits of a plane of two bits, at the bottom of each byte: j = 0 .. 3.
inline __m256i two_bits(const uint8_t* plane, size_t step, size_t half, int j) {
  return masked(down(load(plane + step * 128 + half * 64), 2 * j), 3);
}
inline __m256i one_bit(const uint8_t* plane, size_t step, int half, int j) {
  return masked(down(load(plane + step * 64), 2 * half + j % 2 + j / 2 * 4), 1);
}

// Levels less 128 of 8 vectors x 4 dims: j of half `half` of the 32 dims of `step`.
inline __m256i levels_at(const Source& s, size_t step, int half, int j) {
  const auto h = static_cast<size_t>(half);
  if (s.bits == 1) return _mm256_shuffle_epi8(s.table[0], one_bit(s.top, step, half, j));
  __m256i code = two_bits(s.top, step, h, j);
  if (s.bits == 2) return _mm256_shuffle_epi8(s.table[0], code);
  if (s.bits == 3) {
    code = _mm256_or_si256(up(code, 1), one_bit(s.rest, step, half, j));
    return _mm256_shuffle_epi8(s.table[0], code);
  }
  code = _mm256_or_si256(up(code, 2), two_bits(s.rest, step, h, j));
  if (s.bits == 4) return _mm256_shuffle_epi8(s.table[0], code);
  const uint8_t* third = s.rest + s.dims * 4;
  if (s.bits == 8) {
    code = _mm256_or_si256(up(code, 2), two_bits(third, step, h, j));
    code = _mm256_or_si256(up(code, 2), two_bits(third + s.dims * 4, step, h, j));
    return _mm256_xor_si256(code, bytes(0x80));
  }
  code = s.bits == 5 ? _mm256_or_si256(up(code, 1), one_bit(third, step, half, j))
                     : _mm256_or_si256(up(code, 2), two_bits(third, step, h, j));
  // Four tables of 16: pshufb reads four bits, bits 4 and 5 choose between the results.
  const __m256i low = masked(code, 15);
  const __m256i bit4 = up(code, 3);
  const __m256i bit5 = up(code, 2);
  const __m256i a = _mm256_blendv_epi8(_mm256_shuffle_epi8(s.table[0], low),
                                       _mm256_shuffle_epi8(s.table[1], low), bit4);
  const __m256i b = _mm256_blendv_epi8(_mm256_shuffle_epi8(s.table[2], low),
                                       _mm256_shuffle_epi8(s.table[3], low), bit4);
  return _mm256_blendv_epi8(a, b, bit5);
}

// Adds a group's products with up to kQueryTile queries to their sums of 8 vectors.
template <size_t kQueries>
void add_group(const Source& source, const int8_t* queries, size_t stride,
               __m256i (&sums)[kQueryTile]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (size_t step = 0; step < source.dims / kSearchDims; ++step) {
    for (int half = 0; half < 2; ++half) {
      for (int j = 0; j < 4; ++j) {
        const __m256i levels = levels_at(source, step, half, j);
        const __m256i magnitudes = _mm256_abs_epi8(levels);
        const int8_t* at = queries + step * kSearchDims + static_cast<size_t>(half * 16 + 4 * j);
        for (size_t q = 0; q < kQueries; ++q) {
          int32_t four = 0;
          std::memcpy(&four, at + q * stride, sizeof four);
          const __m256i codes = _mm256_sign_epi8(_mm256_set1_epi32(four), levels);
          const __m256i pairs = _mm256_maddubs_epi16(magnitudes, codes);
          sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
  }
}

template <size_t kQueries>
void scan_half(const SearchScanArgs& args, size_t block, size_t half, size_t query) {
  __m256i sums[kQueryTile] = {};
  size_t dim = 0;
  size_t number = 0;
  for (size_t g = 0; g < args.group_count; ++g) {
    const SearchGroup& group = args.groups[g];
    const Source source = source_of(args, group, block, half);
    add_group<kQueries>(source, args.queries + query * args.query_stride + dim, args.query_stride,
                        sums);
    dim += group.dims;
    if (!group.ends_class) continue;
    for (size_t q = 0; q < kQueries; ++q) {
      float* out = args.sums + (query + q) * args.sum_stride + block * kSearchBlock + half * kLanes;
      const __m256 step = _mm256_set1_ps(args.steps[(query + q) * args.classes + number]);
      const __m256 before =
          number == 0 ? _mm256_set1_ps(args.first[query + q]) : _mm256_loadu_ps(out);
      const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[q]), step);
      _mm256_storeu_ps(out, _mm256_add_ps(before, product));
      sums[q] = _mm256_setzero_si256();
    }
    ++number;
  }
}

void scan(const SearchScanArgs& args) {
  for (size_t block = 0; block < args.blocks; ++block) {
    for (size_t half = 0; half < 2; ++half) {
      size_t query = 0;
      for (; query + kQueryTile <= args.query_count; query += kQueryTile) {
        scan_half<kQueryTile>(args, block, half, query);
      }
      for (; query < args.query_count; ++query) scan_half<1>(args, block, half, query);
    }
  }
}

void select(const SearchSelectArgs& args) {
  const __m256 constant = _mm256_set1_ps(args.constant);
  const __m256 threshold = _mm256_set1_ps(args.threshold);
  for (size_t block = 0; block < args.blocks; ++block) {
    unsigned mask = 0;
    for (size_t half = 0; half < 2; ++half) {
      const size_t at = block * kSearchBlock + half * kLanes;
      const __m256i bits = _mm256_cvtepu16_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(args.scales + at)));
      const __m256i moved =
          _mm256_add_epi32(_mm256_slli_epi32(bits, 13), _mm256_set1_epi32(96 << 23));
      const __m256i none = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
      const __m256 scale = _mm256_castsi256_ps(_mm256_andnot_si256(none, moved));
      __m256 score = _mm256_mul_ps(_mm256_loadu_ps(args.sums + at), scale);
      score = _mm256_add_ps(score, constant);
      if (args.norms != nullptr) score = _mm256_sub_ps(score, _mm256_loadu_ps(args.norms + at));
      _mm256_storeu_ps(args.scores + at, score);
      const int above = _mm256_movemask_ps(_mm256_cmp_ps(score, threshold, _CMP_GE_OQ));
      mask |= static_cast<unsigned>(above) << half * kLanes;
    }
    args.masks[block] = static_cast<uint16_t>(mask);
  }
}

constexpr size_t kProductRows = 4;

template <size_t kRows>
void product_rows(const SearchProductArgs& args, size_t row) {
  for (size_t j = 0; j < args.columns; j += 2 * kLanes) {
    __m256 low[kRows];
    __m256 high[kRows];
    for (size_t r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_ps();
    const float* a = args.a + row * args.a_stride;
    for (size_t k = 0; k < args.k; ++k) {
      const float* b = args.b + k * args.b_stride + j;
      for (size_t r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_set1_ps(a[r * args.a_stride + k]);
        low[r] = _mm256_add_ps(low[r], _mm256_mul_ps(x, _mm256_loadu_ps(b)));
        high[r] = _mm256_add_ps(high[r], _mm256_mul_ps(x, _mm256_loadu_ps(b + kLanes)));
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      float* out = args.out + (row + r) * args.out_stride + j;
      _mm256_storeu_ps(out, low[r]);
      _mm256_storeu_ps(out + kLanes, high[r]);
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

void codes(const SearchCodesArgs& args) {
  const __m256 factor = _mm256_set1_ps(args.factor);
  for (size_t i = 0; i < args.count; i += kLanes) {
    const size_t count = args.count - i < kLanes ? args.count - i : kLanes;
    float piece[kLanes] = {};
    std::memcpy(piece, args.x + i, count * sizeof(float));
    const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(piece), factor);
    __m256i code = _mm256_setzero_si256();
    for (size_t t = 0; t < args.threshold_count; ++t) {
      const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(args.thresholds[t]), _CMP_GE_OQ);
      code = _mm256_sub_epi32(code, _mm256_castps_si256(above));  // above is -1
    }
    int32_t out[kLanes];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), code);
    for (size_t c = 0; c < count; ++c) args.codes[i + c] = static_cast<uint8_t>(out[c]);
  }
}

}  // namespace

void fill_search(Kernels& kernels) {
  kernels.search_scan = scan;
  kernels.search_select = select;
  kernels.search_product = product;
  kernels.search_codes = codes;
}

}  // namespace kvikk::avx2
