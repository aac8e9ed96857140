// Reference: coded keys and values to float pages.

#include <cstring>

#include "kernels/coded_page.h"
#include "kernels/float16.h"
#include "kernels/kernels.h"

namespace kvikk::scalar {

namespace {

unsigned code_at(const uint8_t* run, size_t bits, size_t units, size_t unit, size_t lane) {
  switch (bits) {
    case 8:
      return run[unit * 64 + lane];
    case 4:
      return run[unit / 2 * 64 + lane] >> unit % 2 * 4 & 15u;
    default: {
      const unsigned low = run[unit / 4 * 64 + lane] >> unit % 4 * 2 & 3u;
      if (bits == 2) return low;
      const uint8_t* thirds = run + 64 * ((units + 3) / 4) + unit * 8;
      return low | (thirds[lane / 8] >> lane % 8 & 1u) << 2;
    }
  }
}

float level_of(const CodedLayout& layout, size_t bits, unsigned code) {
  if (bits == 8) return (static_cast<float>(code) - 128.0f) * layout.step;
  return layout.levels[bits][code];
}

float scale_at(const uint8_t* scales, size_t token) {
  uint16_t half = 0;
  std::memcpy(&half, scales + 2 * token, sizeof half);
  return half_to_float(half);
}

void decode_keys(const uint8_t* part, const CodedLayout& layout, size_t out_dims, float* out) {
  const size_t block_bytes = coded_key_block_bytes(layout);
  const uint8_t* scales = part + 4 * block_bytes;
  for (size_t block = 0; block < 4; ++block) {
    const uint8_t* run = part + block * block_bytes;
    float* to = out + block * out_dims * 16;  // [dims][16 tokens]
    for (const CodedSegment& s : layout.segments) {
      const size_t units = s.dims / 4;
      for (size_t d = 0; d < s.dims; ++d, to += 16) {
        for (size_t t = 0; t < 16; ++t) {
          if (s.bits == 0) {
            to[t] = 0.0f;
            continue;
          }
          const unsigned code = code_at(run, s.bits, units, d / 4, t * 4 + d % 4);
          to[t] = level_of(layout, s.bits, code) * scale_at(scales, block * 16 + t);
        }
      }
      run += coded_run_bytes(s.bits, units);
    }
  }
}

void decode_values(const uint8_t* part, const CodedLayout& layout, float* out) {
  const size_t row_bytes = coded_value_row_bytes(layout);
  const uint8_t* scales = part + 16 * row_bytes;
  const size_t dims = coded_dims(layout);
  for (size_t token = 0; token < kPageTokens; ++token) {
    const uint8_t* run = part + token / 4 * row_bytes;
    const float scale = scale_at(scales, token);
    float* to = out + token * dims;
    for (const CodedSegment& s : layout.segments) {
      const size_t units = s.dims / 16;
      for (size_t d = 0; d < s.dims; ++d, ++to) {
        const unsigned code =
            s.bits == 0 ? 0 : code_at(run, s.bits, units, d / 16, d % 16 * 4 + token % 4);
        *to = s.bits == 0 ? 0.0f : level_of(layout, s.bits, code) * scale;
      }
      run += coded_run_bytes(s.bits, units);
    }
  }
}

}  // namespace

void fill_coded(Kernels& kernels) {
  kernels.decode_keys = decode_keys;
  kernels.decode_values = decode_values;
}

}  // namespace kvikk::scalar
