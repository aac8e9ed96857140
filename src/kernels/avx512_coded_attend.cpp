// Attention over coded pages for AVX-512, in integers. A unit of 64 codes becomes 64 bytes of the
// codebook by one permutation, shared by all rows of a tile; vpdpbusd multiplies them with four
// dims of a query, or with the weights of four tokens. Memory is read at the size of the codes, and
// a token costs a quarter of the multiplications of floats.
//
// Row invariance: integer sums are exact; everything else is done for each row by itself.

#include "kernels/avx512_softmax.h"
#include "kernels/coded_page.h"
#include "kernels/coded_tiles.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_coded_attend(Kernels& kernels);

namespace {

constexpr size_t kLine = 64;
// Units of values at a time: the accumulators and the units fit the 32 registers.
constexpr size_t units_at_a_time(size_t rows) { return rows <= 6 ? 4 : 2; }

int32_t load_int(const void* p) {
  int32_t value = 0;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

// Levels as bytes: the permutation looks at six bits of an index, the table repeats.
template <size_t kBits>
__m512i byte_table(const CodedLayout& layout) {
  if constexpr (kBits == 8) {
    return _mm512_setzero_si512();
  } else {
    return _mm512_broadcast_i32x4(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(layout.level_bytes[kBits])));
  }
}

// The 64 signed level bytes of unit u of a run. Keys use them with 128 added.
template <size_t kBits>
__m512i unit_bytes(const uint8_t* run, size_t units, size_t u, __m512i table) {
  if constexpr (kBits == 8) {
    return _mm512_loadu_si512(run + u * kLine);
  } else if constexpr (kBits == 4) {
    const __m512i line = _mm512_loadu_si512(run + u / 2 * kLine);
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(u % 2 * 4));
    return _mm512_permutexvar_epi8(_mm512_srl_epi16(line, shift), table);
  } else {
    const __m512i line = _mm512_loadu_si512(run + u / 4 * kLine);
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(u % 4 * 2));
    const __m512i low = _mm512_srl_epi16(line, shift);
    if constexpr (kBits == 2) return _mm512_permutexvar_epi8(low, table);
    const uint8_t* thirds = run + (units + 3) / 4 * kLine + u * 8;
    uint64_t mask = 0;
    __builtin_memcpy(&mask, thirds, sizeof mask);
    const __m512i code = _mm512_and_si512(low, _mm512_set1_epi8(3));
    const __mmask64 third = _cvtu64_mask64(mask);
    const __m512i whole = _mm512_mask_add_epi8(code, third, code, _mm512_set1_epi8(4));
    return _mm512_permutexvar_epi8(whole, table);
  }
}

template <size_t kBits, size_t kRows, bool kTwo>
void score_run(const uint8_t* run, size_t units, const CodedLayout& layout, const int8_t* query,
               size_t dims, __m512i (&high)[kRows], __m512i (&low)[kRows]) {
  __m512i table = byte_table<kBits>(layout);
  if constexpr (kBits != 8) table = _mm512_xor_si512(table, _mm512_set1_epi8(-128));
  const auto add = [&](size_t u) __attribute__((always_inline)) {
    const __m512i keys = unit_bytes<kBits>(run, units, u, table);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const int8_t* q = query + r * 2 * dims + u * 4;
      high[r] = _mm512_dpbusd_epi32(high[r], keys, _mm512_set1_epi32(load_int(q)));
      if constexpr (kTwo) {
        low[r] = _mm512_dpbusd_epi32(low[r], keys, _mm512_set1_epi32(load_int(q + dims)));
      }
    }
  };
  for (size_t u = 0; u < units; u += 4) {  // segments are multiples of 16 dims
    add(u);
    add(u + 1);
    add(u + 2);
    add(u + 3);
  }
}

// Scores of 16 tokens.
template <size_t kRows, bool kTwo>
void score_block(const Tile& tile, const uint8_t* keys, size_t block) {
  const CodedAttendArgs& args = *tile.args;
  const CodedLayout& layout = *args.keys;
  const size_t block_bytes = coded_key_block_bytes(layout);
  const uint8_t* run = keys + block * block_bytes;
  const int8_t* query = args.query_bytes + tile.row * 2 * tile.key_dims;
  __m512i high[kRows];
  __m512i low[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    const int32_t* sums = args.query_sums + (tile.row + r) * 2;
    high[r] = _mm512_set1_epi32(-128 * sums[0]);
    low[r] = _mm512_set1_epi32(-128 * sums[1]);
  }
  for (const CodedSegment& s : layout.segments) {
    const size_t units = s.dims / 4;
    // Dims without codes have zeros for query bytes.
    with_code_bits(s.bits, [&](auto bits) {
      score_run<bits.kBits, kRows, kTwo>(run, units, layout, query, tile.key_dims, high, low);
    });
    run += coded_run_bytes(s.bits, units);
    query += s.dims;
  }
  const __m512 scale = _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + 4 * block_bytes + block * 32)));
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    __m512 dot = _mm512_cvtepi32_ps(high[r]);
    if constexpr (kTwo)
      dot = _mm512_fmadd_ps(dot, _mm512_set1_ps(128.0f), _mm512_cvtepi32_ps(low[r]));
    const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(args.query_scales[tile.row + r]));
    _mm512_storeu_ps(tile.weights + r * kPageTokens + block * 16, _mm512_mul_ps(dot, factor));
  }
}

// Adds the position term to the scores of 16 tokens.
template <size_t kRows>
void add_position(const Tile& tile, size_t block) {
  const PositionTerm& position = *tile.args->position;
  const float* polynomial = tile.turned + 2 * position.fast * kTileRowsMax;
  const __m512 x =
      _mm512_add_ps(_mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                    _mm512_set1_ps(static_cast<float>(block * 16) - kPageMiddle));
  __m512 sum[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    sum[r] = _mm512_set1_ps(polynomial[(kPositionPowers - 1) * kTileRowsMax + r]);
  }
#pragma GCC unroll 8
  for (size_t k = kPositionPowers - 1; k > 0; --k) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = _mm512_fmadd_ps(sum[r], x, _mm512_set1_ps(polynomial[(k - 1) * kTileRowsMax + r]));
    }
  }
  const float* cosines = position.angles + block * 16;
  const float* sines = cosines + position.table_pairs * kPageTokens;
  __m512 sines_sum[kRows];  // apart: two short chains of additions
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) sines_sum[r] = _mm512_setzero_ps();
  for (size_t p = 0; p < position.fast; ++p) {
    const size_t at = position.pairs[p] * kPageTokens;
    const __m512 cosine = _mm512_loadu_ps(cosines + at);
    const __m512 sine = _mm512_loadu_ps(sines + at);
    const float* turned = tile.turned + 2 * p * kTileRowsMax;
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = _mm512_fmadd_ps(cosine, _mm512_set1_ps(turned[r]), sum[r]);
      sines_sum[r] = _mm512_fmadd_ps(sine, _mm512_set1_ps(turned[kTileRowsMax + r]), sines_sum[r]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    float* score = tile.weights + r * kPageTokens + block * 16;
    const __m512 both = _mm512_add_ps(sum[r], sines_sum[r]);
    _mm512_storeu_ps(score, _mm512_add_ps(_mm512_loadu_ps(score), both));
  }
}

// Weights times the values' scales to bytes; returns what a byte counts.
float weights_to_bytes(const float* weights, const uint8_t* scales, uint8_t* bytes) {
  __m512 w[4];
  __m512 sum = _mm512_setzero_ps();
  __m512 largest = _mm512_set1_ps(1e-30f);
#pragma GCC unroll 4
  for (size_t b = 0; b < 4; ++b) {
    const __m512 scale =
        _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales + b * 32)));
    w[b] = _mm512_mul_ps(_mm512_loadu_ps(weights + b * 16), scale);
    sum = _mm512_add_ps(sum, w[b]);
    largest = _mm512_max_ps(w[b], largest);
  }
  const float most = _mm512_reduce_max_ps(largest);
  const __m512 factor = _mm512_set1_ps(255.0f / most);
#pragma GCC unroll 4
  for (size_t b = 0; b < 4; ++b) {
    const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(w[b], factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + b * 16), _mm512_cvtusepi32_epi8(code));
  }
  const float total = _mm512_reduce_add_ps(sum);
  return most / 255.0f + (total - total);  // a value that is no number stays one
}

// acc = acc * rescale + weights x values for kCount units from unit `first` on.
template <size_t kBits, size_t kRows, size_t kCount>
void add_units(const Tile& tile, const uint8_t* values, size_t first, const float* rescale,
               const float* step) {
  const CodedLayout& layout = *tile.args->values;
  const size_t units = tile.value_dims / 16;
  const size_t row_bytes = coded_run_bytes(kBits, units);
  const __m512i table = byte_table<kBits>(layout);
  __m512i sum[kRows][kCount];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t u = 0; u < kCount; ++u) sum[r][u] = _mm512_setzero_si512();
  }
  for (size_t t = 0; t < kPageTokens / 4; ++t) {
    const uint8_t* run = values + t * row_bytes;
    __m512i value[kCount];
#pragma GCC unroll 4
    for (size_t u = 0; u < kCount; ++u) {
      value[u] = unit_bytes<kBits>(run, units, first + u, table);
      if constexpr (kBits == 8) value[u] = _mm512_xor_si512(value[u], _mm512_set1_epi8(-128));
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const __m512i w = _mm512_set1_epi32(load_int(tile.bytes + r * kPageTokens + t * 4));
#pragma GCC unroll 4
      for (size_t u = 0; u < kCount; ++u) sum[r][u] = _mm512_dpbusd_epi32(sum[r][u], w, value[u]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    float* acc = tile.args->acc + (tile.row + r) * tile.value_dims + first * 16;
    const __m512 keep = _mm512_set1_ps(rescale[r]);
    const __m512 factor = _mm512_set1_ps(step[r] * layout.byte_scale[kBits]);
#pragma GCC unroll 4
    for (size_t u = 0; u < kCount; ++u) {
      const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(acc + u * 16), keep);
      _mm512_storeu_ps(acc + u * 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][u]), factor, old));
    }
  }
}

template <size_t kBits, size_t kRows>
void add_values(const Tile& tile, const uint8_t* values, const float* rescale, const float* step) {
  constexpr size_t kUnits = units_at_a_time(kRows);
  const size_t units = tile.value_dims / 16;
  size_t u = 0;
  for (; u + kUnits <= units; u += kUnits) {
    add_units<kBits, kRows, kUnits>(tile, values, u, rescale, step);
  }
  for (; u < units; ++u) add_units<kBits, kRows, 1>(tile, values, u, rescale, step);
}

template <size_t kRows>
void attend_tile(const Tile& tile) {
  const CodedAttendArgs& args = *tile.args;
  const uint8_t* page = args.pages[tile.page];
  if (args.position != nullptr) {
    turn_terms(*args.position, args.turns[tile.page], tile.terms, tile.turned);
  }
  for (size_t block = 0; block < 4; ++block) {
    if (args.two_halves) {
      score_block<kRows, true>(tile, page, block);
    } else {
      score_block<kRows, false>(tile, page, block);
    }
    if (args.position != nullptr) add_position<kRows>(tile, block);
  }
  if (args.softcap > 0.0f) cap_scores(tile.weights, kRows * kPageTokens, args.softcap);
  const uint8_t* values = page + args.value_offset;
  const size_t bits = args.values->segments[0].bits;
  const uint8_t* scales = values + 16 * coded_value_row_bytes(*args.values);
  const size_t position = args.first_position + tile.page * kPageTokens;
  float rescale[kRows];
  float step[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const size_t row = tile.row + r;
    const uint64_t visible =
        visible_tokens(position, args.visible_begin[row], args.visible_end[row]);
    const __m512 old_max = _mm512_set1_ps(args.max[row]);
    __m512 added;
    const __m512 max = weigh_row(tile.weights + r * kPageTokens, visible, old_max, added);
    rescale[r] = _mm512_cvtss_f32(exp_f32(_mm512_sub_ps(old_max, max)));
    args.max[row] = _mm512_cvtss_f32(max);
    float* sums = tile.sums + row * kLanes;
    _mm512_storeu_ps(sums,
                     _mm512_fmadd_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(rescale[r]), added));
    step[r] =
        weights_to_bytes(tile.weights + r * kPageTokens, scales, tile.bytes + r * kPageTokens);
  }
  with_code_bits(bits,
                 [&](auto count) { add_values<count.kBits, kRows>(tile, values, rescale, step); });
}

constexpr void (*kAttendTile[kTileRowsMax + 1])(const Tile&) = {
    nullptr,        attend_tile<1>, attend_tile<2>, attend_tile<3>, attend_tile<4>,
    attend_tile<5>, attend_tile<6>, attend_tile<7>, attend_tile<8>};

void prefetch(const uint8_t* page, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(page + i), _MM_HINT_T1);
  }
}

void attend_coded(const CodedAttendArgs& args) {
  if (args.rows == 0) return;
  for (size_t i = 0; i < args.rows; ++i) args.max[i] = kNothingVisible;
  const size_t page_bytes = args.value_offset + coded_value_bytes(*args.values);
  const float* sums = attend_in_tiles<kTileRowsMax, kLanes>(
      args,
      [&](size_t page) {
        if (page + 1 < args.page_count) prefetch(args.pages[page + 1], page_bytes);
      },
      [](const Tile& tile, size_t rows) { kAttendTile[rows](tile); });
  for (size_t r = 0; r < args.rows; ++r) {
    args.sum[r] = _mm512_reduce_add_ps(_mm512_loadu_ps(sums + r * kLanes));
  }
}

}  // namespace

void fill_coded_attend(Kernels& kernels) { kernels.attend_coded = attend_coded; }

}  // namespace kvikk::avx512
