// Philox4x32-10, one block at a time and several side by side (the same integers, so the same
// bits).

#include "sampling/random.h"

#include <bit>
#include <random>

#include "base/check.h"

namespace kvikk {
namespace {

// Constants of the paper: the multipliers and the key's Weyl steps (golden ratio, sqrt(3) - 1).
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kStep0 = 0x9E3779B9;
constexpr uint32_t kStep1 = 0xBB67AE85;
constexpr int kRounds = 10;

// 52 random bits as an odd multiple of 2^-53: the bits become the fraction of a number in [1, 2),
// every step is exact, and no conversion from integer is needed (which the baseline instruction set
// cannot vectorise).
double to_uniform(uint64_t bits) {
  const double in_one_two = std::bit_cast<double>((bits >> 12) | 0x3FF0000000000000u);
  return (in_one_two - 1.0) + 0x1p-53;
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kStep0;
    key[1] += kStep1;
  }
  return c;
}

double uniform(RandomKey key, RandomStream stream, uint32_t index) {
  const auto words =
      philox4x32({index / 2, static_cast<uint32_t>(stream), static_cast<uint32_t>(key.position),
                  static_cast<uint32_t>(key.position >> 32)},
                 {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  const size_t low = 2 * (index % 2);
  return to_uniform(words[low] | static_cast<uint64_t>(words[low + 1]) << 32);
}

void uniforms(RandomKey key, RandomStream stream, uint32_t first, size_t count, double* out) {
  DCHECK(first % kUniformsStep == 0);
  DCHECK(count % kUniformsStep == 0);
  constexpr size_t kBlocks = kUniformsStep / 2;
  for (size_t done = 0; done < count; done += kUniformsStep) {
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) {
      c0[b] = static_cast<uint32_t>((first + done) / 2 + b);
      c1[b] = static_cast<uint32_t>(stream);
      c2[b] = static_cast<uint32_t>(key.position);
      c3[b] = static_cast<uint32_t>(key.position >> 32);
    }
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      for (size_t b = 0; b < kBlocks; ++b) {
        const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c0[b];
        const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c2[b];
        c0[b] = static_cast<uint32_t>(p1 >> 32) ^ c1[b] ^ k0;
        c1[b] = static_cast<uint32_t>(p1);
        c2[b] = static_cast<uint32_t>(p0 >> 32) ^ c3[b] ^ k1;
        c3[b] = static_cast<uint32_t>(p0);
      }
      k0 += kStep0;
      k1 += kStep1;
    }
    for (size_t b = 0; b < kBlocks; ++b) {
      out[done + 2 * b] = to_uniform(c0[b] | static_cast<uint64_t>(c1[b]) << 32);
      out[done + 2 * b + 1] = to_uniform(c2[b] | static_cast<uint64_t>(c3[b]) << 32);
    }
  }
}

int64_t fresh_seed() {
  std::random_device entropy;
  return static_cast<int64_t>((static_cast<uint64_t>(entropy()) << 32 | entropy()) >> 1);
}

}  // namespace kvikk
