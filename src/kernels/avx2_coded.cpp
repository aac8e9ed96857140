// Coded keys and values to float pages for AVX2: 8 codes at a time, a permutation of two registers
// of levels.

#include <immintrin.h>

#include "kernels/coded_page.h"
#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_coded(Kernels& kernels);

namespace {

constexpr size_t kLine = 64;

// Codes of a run as 32-bit lanes, and their levels.
template <size_t kBits>
struct Run {
  const uint8_t* bytes;
  const uint8_t* thirds;  // third bits of 3-bit codes
  __m256 low, high;       // levels of codes 0 to 7, 8 to 15; of 8 bits the step

  // Codes of 8 lanes of 32 bits, 4 codes each, from lane `first` of unit `u` on.
  __m256i codes(size_t u, size_t first) const {
    constexpr size_t kUnits = kBits == 8 ? 1 : kBits == 4 ? 2 : 4;  // in a line
    constexpr int kPlane = kBits == 8 ? 8 : kBits == 4 ? 4 : 2;     // bits of it
    const uint8_t* from = bytes + u / kUnits * kLine + first * 4;
    const __m256i line = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (kBits == 8) return line;
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(u % kUnits) * kPlane);
    const __m256i code = _mm256_and_si256(_mm256_srl_epi32(line, shift),
                                          _mm256_set1_epi8(static_cast<char>((1 << kPlane) - 1)));
    if constexpr (kBits != 3) return code;
    int32_t bits = 0;
    __builtin_memcpy(&bits, thirds + u * 8 + first / 2, sizeof bits);
    // Every byte the bit of its own: a byte of the four to eight places, then one bit of it.
    const __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(bits), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2,
                                                  2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own);
    return _mm256_or_si256(code, _mm256_and_si256(set, _mm256_set1_epi8(4)));
  }
  // Byte kByte of each lane to its level.
  template <int kByte>
  __m256 level(__m256i lanes) const {
    const __m256i code =
        _mm256_and_si256(_mm256_srli_epi32(lanes, 8 * kByte), _mm256_set1_epi32(255));
    if constexpr (kBits == 8) {
      const __m256i centred = _mm256_sub_epi32(code, _mm256_set1_epi32(128));
      return _mm256_mul_ps(_mm256_cvtepi32_ps(centred), low);
    }
    const __m256 small = _mm256_permutevar8x32_ps(low, code);
    if constexpr (kBits != 4) return small;
    const __m256 large = _mm256_permutevar8x32_ps(high, code);
    return _mm256_blendv_ps(small, large, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
  }
};

template <size_t kBits>
Run<kBits> run_at(const uint8_t* bytes, const CodedLayout& layout, size_t units) {
  const uint8_t* thirds = bytes + kLine * ((units + 3) / 4);
  if constexpr (kBits == 8) {
    const __m256 step = _mm256_set1_ps(layout.step);
    return {bytes, thirds, step, step};
  } else {
    const float* levels = layout.levels[kBits];
    return {bytes, thirds, _mm256_loadu_ps(levels), _mm256_loadu_ps(levels + 8)};
  }
}

void decode_keys(const uint8_t* part, const CodedLayout& layout, size_t out_dims, float* out) {
  const size_t block_bytes = coded_key_block_bytes(layout);
  for (size_t block = 0; block < 4; ++block) {
    const uint8_t* run = part + block * block_bytes;
    const auto* scales = reinterpret_cast<const __m128i*>(part + 4 * block_bytes + block * 32);
    float* to = out + block * out_dims * 16;
    for (const CodedSegment& s : layout.segments) {
      const size_t units = s.dims / 4;
      with_code_bits(s.bits, [&](auto bits) {
        const Run<bits.kBits> codes = run_at<bits.kBits>(run, layout, units);
        for (size_t half = 0; half < 2; ++half) {
          const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128(scales + half));
          for (size_t u = 0; u < units; ++u) {
            const __m256i lanes = codes.codes(u, half * 8);
            float* at = to + u * 64 + half * 8;
            _mm256_storeu_ps(at, _mm256_mul_ps(codes.template level<0>(lanes), scale));
            _mm256_storeu_ps(at + 16, _mm256_mul_ps(codes.template level<1>(lanes), scale));
            _mm256_storeu_ps(at + 32, _mm256_mul_ps(codes.template level<2>(lanes), scale));
            _mm256_storeu_ps(at + 48, _mm256_mul_ps(codes.template level<3>(lanes), scale));
          }
        }
      });
      for (size_t i = 0; s.bits == 0 && i < s.dims * 2; ++i) {
        _mm256_storeu_ps(to + i * 8, _mm256_setzero_ps());
      }
      run += coded_run_bytes(s.bits, units);
      to += s.dims * 16;
    }
  }
}

void decode_values(const uint8_t* part, const CodedLayout& layout, float* out) {
  const size_t row_bytes = coded_value_row_bytes(layout);
  const uint8_t* scales = part + 16 * row_bytes;
  const size_t dims = coded_dims(layout);
  for (size_t row = 0; row < kPageTokens / 4; ++row) {
    const uint8_t* run = part + row * row_bytes;
    const __m128 four =
        _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + row * 8)));
    const __m256 all = _mm256_set_m128(four, four);
    const __m256 scale[4] = {_mm256_permute_ps(all, 0x00), _mm256_permute_ps(all, 0x55),
                             _mm256_permute_ps(all, 0xaa), _mm256_permute_ps(all, 0xff)};
    float* to = out + row * 4 * dims;
    for (const CodedSegment& s : layout.segments) {
      const size_t units = s.dims / 16;
      with_code_bits(s.bits, [&](auto bits) {
        const Run<bits.kBits> codes = run_at<bits.kBits>(run, layout, units);
        for (size_t i = 0; i < 2 * units; ++i) {
          const __m256i lanes = codes.codes(i / 2, i % 2 * 8);
          float* at = to + i * 8;
          _mm256_storeu_ps(at, _mm256_mul_ps(codes.template level<0>(lanes), scale[0]));
          _mm256_storeu_ps(at + dims, _mm256_mul_ps(codes.template level<1>(lanes), scale[1]));
          _mm256_storeu_ps(at + 2 * dims, _mm256_mul_ps(codes.template level<2>(lanes), scale[2]));
          _mm256_storeu_ps(at + 3 * dims, _mm256_mul_ps(codes.template level<3>(lanes), scale[3]));
        }
      });
      for (size_t i = 0; s.bits == 0 && i < 4; ++i) {
        for (size_t d = 0; d < s.dims; d += 8) {
          _mm256_storeu_ps(to + i * dims + d, _mm256_setzero_ps());
        }
      }
      run += coded_run_bytes(s.bits, units);
      to += s.dims;
    }
  }
}

}  // namespace

void fill_coded(Kernels& kernels) {
  kernels.decode_keys = decode_keys;
  kernels.decode_values = decode_values;
}

}  // namespace kvikk::avx2
