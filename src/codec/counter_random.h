#pragma once
// Random numbers that are a function of (seed, counter): the same on every machine, in any order,
// without a state that somebody must keep.

#include <cmath>
#include <cstdint>

namespace kvikk {

// A well mixed function of both arguments (the finalizer of SplitMix64, twice).
inline uint64_t counter_random(uint64_t seed, uint64_t counter) {
  const auto mix = [](uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  };
  return mix(mix(seed + 0x9e3779b97f4a7c15u) ^ (counter * 0x9e3779b97f4a7c15u + 1));
}

// A standard normal number (Box and Muller).
inline double counter_normal(uint64_t seed, uint64_t counter) {
  const uint64_t a = counter_random(seed, 2 * counter);
  const uint64_t b = counter_random(seed, 2 * counter + 1);
  const double u = (static_cast<double>(a >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(b >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

}  // namespace kvikk
