#pragma once
// Lloyd-Max codebooks for one coordinate of a random point of the unit sphere in d dimensions,
// scaled by sqrt(d) to variance 1: density proportional to (1 - x^2 / d)^((d - 3) / 2), close to
// the normal density for large d. They are what a rotated vector's coordinates look like (Zandieh
// et al., arXiv 2504.19874).

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvikk {

inline constexpr size_t kCodebookBitsMax = 6;  // of a table; 8 bits are even steps

struct Codebook {
  size_t bits = 0;
  std::vector<float> levels;      // [2^bits], ascending, symmetric around 0
  std::vector<float> thresholds;  // [2^bits - 1]: midpoints of the levels
  double distortion = 0;          // mean squared error for a coordinate of variance 1

  // The nearest level's index; the upper one on a tie. NaN gives 0.
  uint8_t code(float x) const {
    size_t at = 0;
    for (size_t step = levels.size() / 2; step > 0; step /= 2) {
      if (x >= thresholds[at + step - 1]) at += step;
    }
    return static_cast<uint8_t>(at);
  }
};

// dimensions >= 4, bits 1 to kCodebookBitsMax: computed to about 1e-9, in milliseconds. 8 bits:
// even steps over 4 standard deviations, levels (i - 127.5) * 8 / 255; a uniform code is within a
// factor of about two of the best, and needs no table to decode.
Codebook make_codebook(size_t dimensions, size_t bits);

}  // namespace kvikk
