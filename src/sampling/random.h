#pragma once
// Random numbers that are a pure function of (seed, position, stream, index). There is no generator
// state, so a draw is the same whether a request runs alone, in a batch, resumed or speculated.
//
// The function is Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", SC'11. Key = the seed; counter = (index / 2, stream, position low, position
// high). It passes BigCrush, and its known answers are in the tests.

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvikk {

// What a number is for. Numbers of different streams are independent; a value, once used, never
// changes its meaning, for that would change what every seed draws.
enum class RandomStream : uint32_t {
  kToken = 0,  // index = the token: its noise in the draw
  kXtc = 1,    // index = 0: whether XTC acts
};

struct RandomKey {
  uint64_t seed = 0;
  uint64_t position = 0;
};

// One block of Philox4x32-10.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in (0, 1), never 0 and never 1: an odd multiple of 2^-53.
double uniform(RandomKey key, RandomStream stream, uint32_t index);

// out[i] = uniform(key, stream, first + i), faster. `first` and `count` are multiples of
// kUniformsStep.
inline constexpr size_t kUniformsStep = 64;  // wide enough for the compiler to vectorise
void uniforms(RandomKey key, RandomStream stream, uint32_t first, size_t count, double* out);

// A seed from the system's entropy, in [0, 2^63).
int64_t fresh_seed();

}  // namespace kvikk
