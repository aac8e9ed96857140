// The counter-based generator: its published answers, and that a number depends on its key alone.

#include "sampling/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace kvikk {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Random,
     PhiloxKnownAnswers) {  // from the authors' Random123 distribution, philox4x32 with 10 rounds
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, ManyAtOnceAreTheSameNumbers) {
  const RandomKey keys[] = {{0, 0}, {1, 2}, {0xfedcba9876543210, 0x123456789abcdef0}};
  for (const RandomKey key : keys) {
    for (const uint32_t first : {0u, 64u, 128u * 1024u, 0x7fffff80u}) {
      std::vector<double> many(3 * kUniformsStep);
      uniforms(key, RandomStream::kToken, first, many.size(), many.data());
      for (size_t i = 0; i < many.size(); ++i) {
        const uint32_t index = first + static_cast<uint32_t>(i);
        ASSERT_EQ(many[i], uniform(key, RandomStream::kToken, index)) << index;
      }
    }
  }
}

TEST(Random, EveryPartOfTheKeyMatters) {
  const uint64_t high = 1ull << 40;
  const std::set<double> numbers = {
      uniform({5, 7}, RandomStream::kToken, 0),        uniform({6, 7}, RandomStream::kToken, 0),
      uniform({5 + high, 7}, RandomStream::kToken, 0), uniform({5, 8}, RandomStream::kToken, 0),
      uniform({5, 7 + high}, RandomStream::kToken, 0), uniform({5, 7}, RandomStream::kToken, 1),
      uniform({5, 7}, RandomStream::kToken, 2),        uniform({5, 7}, RandomStream::kXtc, 0)};
  EXPECT_EQ(numbers.size(), 8u);
}

// Kolmogorov-Smirnov over tokens, over positions and over seeds, and correlation of neighbours.
TEST(Random, UniformAndUncorrelatedAlongEveryAxis) {
  constexpr size_t kCount = 1 << 16;
  for (int axis = 0; axis < 4; ++axis) {
    std::vector<double> x(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      const RandomKey key{axis == 1 ? i : 3, axis == 0 ? i : axis == 3 ? uint64_t{i} << 32 : 9};
      x[i] = uniform(key, RandomStream::kToken, axis == 2 ? i : 11);
      ASSERT_GT(x[i], 0);
      ASSERT_LT(x[i], 1);
    }
    double correlation = 0;
    for (size_t i = 0; i + 1 < kCount; ++i) correlation += 12 * (x[i] - 0.5) * (x[i + 1] - 0.5);
    EXPECT_LT(std::fabs(correlation) / std::sqrt(kCount), 4) << axis;
    std::sort(x.begin(), x.end());
    double distance = 0;
    for (size_t i = 0; i < kCount; ++i) {
      distance = std::max(distance, std::fabs(x[i] - (static_cast<double>(i) + 0.5) / kCount));
    }
    EXPECT_LT(distance * std::sqrt(kCount), 1.95) << axis;  // exceeded by chance once in a thousand
  }
}

TEST(Random, FreshSeedsDiffer) {
  const int64_t a = fresh_seed(), b = fresh_seed();
  EXPECT_GE(a, 0);
  EXPECT_GE(b, 0);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace kvikk
