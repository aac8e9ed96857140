// Coded keys and values to float pages for AVX-512: a unit of 64 codes is one register; its four
// bytes of a 32-bit lane are four dims of a key, or four tokens of a value, and a permutation of a
// register of 16 levels is the codebook.

#include <immintrin.h>

#include "kernels/coded_page.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_coded(Kernels& kernels);

namespace {

template <size_t kBits>
struct Run {
  const uint8_t* bytes;
  const uint8_t* thirds;  // third bits of 3-bit codes
  __m512 levels;

  // Byte i of a lane to its level; the permutation looks at the low 4 bits.
  template <size_t kByte>
  __m512 level(__m512i codes) const {
    const __m512i shifted = _mm512_srli_epi32(codes, 8 * kByte);
    if constexpr (kBits == 8) {
      const __m512i code = _mm512_and_si512(shifted, _mm512_set1_epi32(255));
      const __m512i centred = _mm512_sub_epi32(code, _mm512_set1_epi32(128));
      return _mm512_mul_ps(_mm512_cvtepi32_ps(centred), levels);
    } else {
      return _mm512_permutexvar_ps(shifted, levels);
    }
  }
  __m512i unit(size_t u) const {
    if constexpr (kBits == 8) {
      return _mm512_loadu_si512(bytes + u * 64);
    } else if constexpr (kBits == 4) {
      const __m512i line = _mm512_loadu_si512(bytes + u / 2 * 64);
      return _mm512_srl_epi32(line, _mm_cvtsi32_si128(static_cast<int>(u % 2 * 4)));
    } else {
      const __m512i line = _mm512_loadu_si512(bytes + u / 4 * 64);
      const __m512i low =
          _mm512_and_si512(_mm512_srl_epi32(line, _mm_cvtsi32_si128(static_cast<int>(u % 4 * 2))),
                           _mm512_set1_epi8(3));
      if constexpr (kBits == 2) return low;
      const __mmask64 third =
          _load_mask64(reinterpret_cast<__mmask64*>(const_cast<uint8_t*>(thirds + u * 8)));
      return _mm512_mask_add_epi8(low, third, low, _mm512_set1_epi8(4));
    }
  }
};

template <size_t kBits>
Run<kBits> run_at(const uint8_t* bytes, const CodedLayout& layout, size_t units) {
  return {bytes, bytes + 64 * ((units + 3) / 4),
          kBits == 8 ? _mm512_set1_ps(layout.step)
                     : _mm512_loadu_ps(layout.levels[kBits == 8 ? 0 : kBits])};
}

__m512 scales_at(const uint8_t* scales) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
}

template <size_t kBits>
void decode_key_run(const uint8_t* bytes, const CodedLayout& layout, size_t dims, __m512 scale,
                    float* out) {
  const Run<kBits> run = run_at<kBits>(bytes, layout, dims / 4);
  for (size_t u = 0; u < dims / 4; ++u) {
    const __m512i codes = run.unit(u);
    _mm512_storeu_ps(out, _mm512_mul_ps(run.template level<0>(codes), scale));
    _mm512_storeu_ps(out + 16, _mm512_mul_ps(run.template level<1>(codes), scale));
    _mm512_storeu_ps(out + 32, _mm512_mul_ps(run.template level<2>(codes), scale));
    _mm512_storeu_ps(out + 48, _mm512_mul_ps(run.template level<3>(codes), scale));
    out += 64;
  }
}

void decode_keys(const uint8_t* part, const CodedLayout& layout, size_t out_dims, float* out) {
  const size_t block_bytes = coded_key_block_bytes(layout);
  for (size_t block = 0; block < 4; ++block) {
    const uint8_t* run = part + block * block_bytes;
    const __m512 scale = scales_at(part + 4 * block_bytes + block * 32);
    float* to = out + block * out_dims * 16;
    for (const CodedSegment& s : layout.segments) {
      with_code_bits(
          s.bits, [&](auto bits) { decode_key_run<bits.kBits>(run, layout, s.dims, scale, to); });
      for (size_t d = 0; s.bits == 0 && d < s.dims; ++d) {
        _mm512_storeu_ps(to + d * 16, _mm512_setzero_ps());
      }
      run += coded_run_bytes(s.bits, s.dims / 4);
      to += s.dims * 16;
    }
  }
}

// Four tokens, `dims` of `stride` dims each.
template <size_t kBits>
void decode_value_run(const uint8_t* bytes, const CodedLayout& layout, size_t dims,
                      const __m512 (&scale)[4], size_t stride, float* out) {
  const Run<kBits> run = run_at<kBits>(bytes, layout, dims / 16);
  for (size_t u = 0; u < dims / 16; ++u) {
    const __m512i codes = run.unit(u);
    float* to = out + u * 16;
    _mm512_storeu_ps(to, _mm512_mul_ps(run.template level<0>(codes), scale[0]));
    _mm512_storeu_ps(to + stride, _mm512_mul_ps(run.template level<1>(codes), scale[1]));
    _mm512_storeu_ps(to + 2 * stride, _mm512_mul_ps(run.template level<2>(codes), scale[2]));
    _mm512_storeu_ps(to + 3 * stride, _mm512_mul_ps(run.template level<3>(codes), scale[3]));
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
    const __m512 all = _mm512_broadcast_f32x4(four);
    const __m512 scale[4] = {_mm512_permute_ps(all, 0x00), _mm512_permute_ps(all, 0x55),
                             _mm512_permute_ps(all, 0xaa), _mm512_permute_ps(all, 0xff)};
    float* to = out + row * 4 * dims;
    for (const CodedSegment& s : layout.segments) {
      with_code_bits(s.bits, [&](auto bits) {
        decode_value_run<bits.kBits>(run, layout, s.dims, scale, dims, to);
      });
      for (size_t i = 0; s.bits == 0 && i < 4; ++i) {
        for (size_t d = 0; d < s.dims; d += 16) {
          _mm512_storeu_ps(to + i * dims + d, _mm512_setzero_ps());
        }
      }
      run += coded_run_bytes(s.bits, s.dims / 16);
      to += s.dims;
    }
  }
}

}  // namespace

void fill_coded(Kernels& kernels) {
  kernels.decode_keys = decode_keys;
  kernels.decode_values = decode_values;
}

}  // namespace kvikk::avx512
