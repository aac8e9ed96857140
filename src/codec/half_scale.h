#pragma once
// Scales of coded vectors as half floats.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/float16.h"

namespace kvikk {

inline constexpr float kHalfMax = 65504.0f;

// Rounds a scale >= 0 to the nearest half, ties to even. A finite scale beyond the largest half
// becomes the largest half: such a vector keeps its direction and comes back shorter. NaN and
// infinity become NaN, so that a fault reaches every output.
inline uint16_t scale_to_half(float scale) {
  if (!std::isfinite(scale)) return 0x7e00;
  if (scale >= kHalfMax) return 0x7bff;
  if (scale < 0x1p-14f) {  // subnormal: steps of 2^-24
    return static_cast<uint16_t>(std::nearbyint(scale * 0x1p24f));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  const uint32_t rounded = bits + 0xfffu + (bits >> 13 & 1u);
  return static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

inline void put_half_scale(float scale, uint8_t* out) {
  const uint16_t half = scale_to_half(scale);
  std::memcpy(out, &half, sizeof half);
}

inline float get_half_scale(const uint8_t* coded) {
  uint16_t half = 0;
  std::memcpy(&half, coded, sizeof half);
  return half_to_float(half);
}

}  // namespace kvikk
