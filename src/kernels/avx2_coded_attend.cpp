// Attention over coded pages for AVX2, in integers. 32 codes become 32 bytes of the codebook by one
// shuffle, shared by all rows of a tile. maddubs wants one factor without a sign and adds pairs in
// 16 bits: for scores the level's sign moves to the query, for values the weights have 7 bits; so
// no sum of two overflows.
//
// Row invariance: integer sums are exact; everything else is done for each row by itself.

#include "kernels/avx2_softmax.h"
#include "kernels/coded_page.h"
#include "kernels/coded_tiles.h"
#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_coded_attend(Kernels& kernels);

namespace {

constexpr size_t kLine = 64;
constexpr size_t kRowsMax = 6;  // of a tile: their sums and what passes by fit the 16 registers
constexpr float kWeightSteps = 127.0f;

__m256i broadcast_int(const void* p) {
  int32_t value = 0;
  __builtin_memcpy(&value, p, sizeof value);
  return _mm256_set1_epi32(value);
}

template <size_t kBits>
__m256i byte_table(const CodedLayout& layout) {
  if constexpr (kBits == 8) {
    return _mm256_setzero_si256();
  } else {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(layout.level_bytes[kBits])));
  }
}

// 32 signed level bytes: half `half` of unit u of a run.
template <size_t kBits>
__m256i unit_bytes(const uint8_t* run, size_t units, size_t u, size_t half, __m256i table) {
  constexpr size_t kUnits = kBits == 8 ? 1 : kBits == 4 ? 2 : 4;  // in a line
  constexpr int kPlane = kBits == 8 ? 8 : kBits == 4 ? 4 : 2;     // bits of it
  const __m256i line =
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(run + u / kUnits * kLine + half * 32));
  if constexpr (kBits == 8) return _mm256_xor_si256(line, _mm256_set1_epi8(-128));
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(u % kUnits) * kPlane);
  __m256i code = _mm256_and_si256(_mm256_srl_epi32(line, shift),
                                  _mm256_set1_epi8(static_cast<char>((1 << kPlane) - 1)));
  if constexpr (kBits == 3) {
    const __m256i bits = broadcast_int(run + (units + 3) / 4 * kLine + u * 8 + half * 4);
    // Every byte the byte with its bit, then the bit.
    const __m256i spread =
        _mm256_shuffle_epi8(bits, _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                                   2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own);
    code = _mm256_or_si256(code, _mm256_and_si256(set, _mm256_set1_epi8(4)));
  }
  return _mm256_shuffle_epi8(table, code);
}

// sum += four products of a lane. size: |level|; level: for its sign.
__m256i add_products(__m256i sum, __m256i size, __m256i level, __m256i query) {
  const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(query, level));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

template <size_t kBits, size_t kRows>
void score_run(const uint8_t* run, size_t units, size_t half, const CodedLayout& layout,
               const int8_t* query, size_t stride, __m256i (&sum)[kRows]) {
  const __m256i table = byte_table<kBits>(layout);
  for (size_t u = 0; u < units; ++u) {
    const __m256i level = unit_bytes<kBits>(run, units, u, half, table);
    const __m256i size = _mm256_abs_epi8(level);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = add_products(sum[r], size, level, broadcast_int(query + r * stride + u * 4));
    }
  }
}

// The products of 8 tokens with one of the two parts of the queries' bytes.
template <size_t kRows>
void multiply_keys(const Tile& tile, const uint8_t* run, size_t half, const int8_t* query,
                   __m256i (&sum)[kRows]) {
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) sum[r] = _mm256_setzero_si256();
  for (const CodedSegment& s : tile.args->keys->segments) {
    const size_t units = s.dims / 4;
    with_code_bits(s.bits, [&](auto bits) {
      score_run<bits.kBits, kRows>(run, units, half, *tile.args->keys, query, 2 * tile.key_dims,
                                   sum);
    });
    run += coded_run_bytes(s.bits, units);
    query += s.dims;
  }
}

// Adds the position term to the scores of 8 tokens from `token` on.
template <size_t kRows>
void add_position(const Tile& tile, size_t token, __m256 (&score)[kRows]) {
  const PositionTerm& position = *tile.args->position;
  const float* polynomial = tile.turned + 2 * position.fast * kTileRowsMax;
  const __m256 x = _mm256_add_ps(_mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0),
                                 _mm256_set1_ps(static_cast<float>(token) - kPageMiddle));
  __m256 sum[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    sum[r] = _mm256_set1_ps(polynomial[(kPositionPowers - 1) * kTileRowsMax + r]);
  }
  for (size_t k = kPositionPowers - 1; k > 0; --k) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = _mm256_fmadd_ps(sum[r], x, _mm256_set1_ps(polynomial[(k - 1) * kTileRowsMax + r]));
    }
  }
  const float* cosines = position.angles + token;
  const float* sines = cosines + position.table_pairs * kPageTokens;
  __m256 sines_sum[kRows];  // apart: two short chains of additions
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) sines_sum[r] = _mm256_setzero_ps();
  for (size_t p = 0; p < position.fast; ++p) {
    const size_t at = position.pairs[p] * kPageTokens;
    const __m256 cosine = _mm256_loadu_ps(cosines + at);
    const __m256 sine = _mm256_loadu_ps(sines + at);
    const float* turned = tile.turned + 2 * p * kTileRowsMax;
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = _mm256_fmadd_ps(cosine, _mm256_set1_ps(turned[r]), sum[r]);
      sines_sum[r] = _mm256_fmadd_ps(sine, _mm256_set1_ps(turned[kTileRowsMax + r]), sines_sum[r]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r)
    score[r] = _mm256_add_ps(score[r], _mm256_add_ps(sum[r], sines_sum[r]));
}

// Scores of 8 tokens: half `half` of a block of 16.
template <size_t kRows>
void score_half(const Tile& tile, const uint8_t* keys, size_t block, size_t half) {
  const CodedAttendArgs& args = *tile.args;
  const size_t block_bytes = coded_key_block_bytes(*args.keys);
  const uint8_t* run = keys + block * block_bytes;
  const int8_t* query = args.query_bytes + tile.row * 2 * tile.key_dims;
  __m256i sum[kRows];
  __m256 score[kRows];
  multiply_keys<kRows>(tile, run, half, query, sum);
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) score[r] = _mm256_cvtepi32_ps(sum[r]);
  if (args.two_halves) {
    multiply_keys<kRows>(tile, run, half, query + tile.key_dims, sum);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      score[r] = _mm256_fmadd_ps(score[r], _mm256_set1_ps(128.0f), _mm256_cvtepi32_ps(sum[r]));
    }
  }
  const size_t token = block * 16 + half * 8;
  const __m256 scale = _mm256_cvtph_ps(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys + 4 * block_bytes + token * 2)));
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(args.query_scales[tile.row + r]));
    score[r] = _mm256_mul_ps(score[r], factor);
  }
  if (args.position != nullptr) add_position<kRows>(tile, token, score);
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(tile.weights + r * kPageTokens + token, score[r]);
  }
}

// Weights times the values' scales to bytes; returns what a byte counts.
float weights_to_bytes(const float* weights, const uint8_t* scales, uint8_t* bytes) {
  __m256 w[kVectors];
  __m256 sum = _mm256_setzero_ps();
  __m256 largest = _mm256_set1_ps(1e-30f);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    const __m256 scale =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + v * 16)));
    w[v] = _mm256_mul_ps(_mm256_loadu_ps(weights + v * kLanes), scale);
    sum = _mm256_add_ps(sum, w[v]);
    largest = _mm256_max_ps(w[v], largest);
  }
  const float most = reduce_max(largest);
  const __m256 factor = _mm256_set1_ps(kWeightSteps / most);
  // packs and packus work on halves of a register: the permutation puts fours back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (size_t v = 0; v < kVectors; v += 4) {
    __m256i code[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(w[v + i], factor));
    const __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(code[0], code[1]),
                                               _mm256_packs_epi32(code[2], code[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + v * kLanes),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
  const float total = reduce_add(sum);
  return most / kWeightSteps + (total - total);  // a value that is no number stays one
}

// acc = acc * rescale + weights x values for 8 dims from `half` of unit `u` on.
template <size_t kBits, size_t kRows>
void add_values(const Tile& tile, const uint8_t* values, const float* rescale, const float* step) {
  const CodedLayout& layout = *tile.args->values;
  const size_t units = tile.value_dims / 16;
  const size_t row_bytes = coded_run_bytes(kBits, units);
  const __m256i table = byte_table<kBits>(layout);
  for (size_t i = 0; i < 2 * units; ++i) {
    __m256i sum[kRows];
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) sum[r] = _mm256_setzero_si256();
    for (size_t t = 0; t < kPageTokens / 4; ++t) {
      const __m256i level = unit_bytes<kBits>(values + t * row_bytes, units, i / 2, i % 2, table);
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
        const __m256i weight = broadcast_int(tile.bytes + r * kPageTokens + t * 4);
        const __m256i pairs = _mm256_maddubs_epi16(weight, level);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      float* acc = tile.args->acc + (tile.row + r) * tile.value_dims + i * 8;
      const __m256 factor = _mm256_set1_ps(step[r] * layout.byte_scale[kBits]);
      const __m256 old = _mm256_mul_ps(_mm256_loadu_ps(acc), _mm256_set1_ps(rescale[r]));
      _mm256_storeu_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), factor, old));
    }
  }
}

template <size_t kRows>
void attend_tile(const Tile& tile) {
  const CodedAttendArgs& args = *tile.args;
  const uint8_t* page = args.pages[tile.page];
  if (args.position != nullptr) {
    turn_terms(*args.position, args.turns[tile.page], tile.terms, tile.turned);
  }
  for (size_t i = 0; i < 8; ++i) score_half<kRows>(tile, page, i / 2, i % 2);
  if (args.softcap > 0.0f) cap_scores(tile.weights, kRows * kPageTokens, args.softcap);
  const uint8_t* values = page + args.value_offset;
  const uint8_t* scales = values + 16 * coded_value_row_bytes(*args.values);
  const size_t position = args.first_position + tile.page * kPageTokens;
  float rescale[kRows];
  float step[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const size_t row = tile.row + r;
    const Visible visible =
        visible_tokens(position, args.visible_begin[row], args.visible_end[row]);
    float* weights = tile.weights + r * kPageTokens;
    __m256 added;
    const float max = weigh_row(weights, visible, args.max[row], added);
    rescale[r] = _mm256_cvtss_f32(exp_f32(_mm256_set1_ps(args.max[row] - max)));
    args.max[row] = max;
    float* sums = tile.sums + row * kLanes;
    _mm256_storeu_ps(sums,
                     _mm256_fmadd_ps(_mm256_loadu_ps(sums), _mm256_set1_ps(rescale[r]), added));
    step[r] = weights_to_bytes(weights, scales, tile.bytes + r * kPageTokens);
  }
  with_code_bits(args.values->segments[0].bits,
                 [&](auto bits) { add_values<bits.kBits, kRows>(tile, values, rescale, step); });
}

constexpr void (*kAttendTile[kRowsMax + 1])(const Tile&) = {
    nullptr,        attend_tile<1>, attend_tile<2>, attend_tile<3>,
    attend_tile<4>, attend_tile<5>, attend_tile<6>};

void attend_coded(const CodedAttendArgs& args) {
  if (args.rows == 0) return;
  for (size_t i = 0; i < args.rows; ++i) args.max[i] = kNothingVisible;
  const float* sums = attend_in_tiles<kRowsMax, kLanes>(
      args, [](size_t) {}, [](const Tile& tile, size_t rows) { kAttendTile[rows](tile); });
  for (size_t r = 0; r < args.rows; ++r) {
    args.sum[r] = reduce_add(_mm256_loadu_ps(sums + r * kLanes));
  }
}

}  // namespace

void fill_coded_attend(Kernels& kernels) { kernels.attend_coded = attend_coded; }

}  // namespace kvikk::avx2
