// The paper's promises, measured: distortion, unbiased inner products, bytes; and what happens to
// vectors that no codebook was made for.

#include "codec/vector_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "codec/counter_random.h"
#include "codec/half_scale.h"

namespace kvikk {
namespace {

constexpr size_t kSizes[] = {64, 80, 96, 112, 128, 192, 256, 512, 576};

std::vector<float> random_vector(std::mt19937_64& random, size_t size, double length) {
  std::normal_distribution<double> normal;
  std::vector<double> x(size);
  double squares = 0;
  for (double& v : x) {
    v = normal(random);
    squares += v * v;
  }
  std::vector<float> out(size);
  for (size_t i = 0; i < size; ++i) {
    out[i] = static_cast<float>(x[i] * length / std::sqrt(squares));
  }
  return out;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

std::vector<float> round_trip(const VectorCodec& codec, const std::vector<float>& x) {
  std::vector<uint8_t> coded(codec.bytes());
  std::vector<float> out(codec.size());
  codec.encode(x.data(), coded.data());
  codec.decode(coded.data(), out.data());
  return out;
}

// E |x - x^|^2 / |x|^2
double measured_distortion(const VectorCodec& codec, size_t vectors) {
  std::mt19937_64 random(5);
  double sum = 0;
  for (size_t v = 0; v < vectors; ++v) {
    const std::vector<float> x = random_vector(random, codec.size(), 3.0);
    const std::vector<float> y = round_trip(codec, x);
    for (size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - y[i], 2);
  }
  return sum / (9.0 * static_cast<double>(vectors));
}

TEST(Codebook, NormalLevelsAreLloydAndMaxs) {
  const std::vector<std::vector<double>> levels = {
      {0.797885},
      {0.452780, 1.510418},
      {0.245094, 0.756005, 1.343909, 2.151946},
      {0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732590}};
  const double distortion[] = {0.363380, 0.117482, 0.034548, 0.009501};
  for (size_t bits = 1; bits <= 4; ++bits) {
    const Codebook book = make_codebook(1 << 20, bits);
    ASSERT_EQ(book.levels.size(), size_t{1} << bits);
    const size_t half = book.levels.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      EXPECT_NEAR(book.levels[half + i], levels[bits - 1][i], 1e-5) << bits << " bits";
      EXPECT_EQ(book.levels[half + i], -book.levels[half - 1 - i]);
    }
    EXPECT_NEAR(book.distortion, distortion[bits - 1], 2e-6) << bits << " bits";
  }
}

TEST(Codebook, SphereDistortionsAreThePublishedOnes) {
  const double at_64[] = {0.3584, 0.1145, 0.0334, 0.00913};
  const double at_128[] = {0.3609, 0.1160, 0.0340, 0.00932};
  for (size_t bits = 1; bits <= 4; ++bits) {
    EXPECT_NEAR(make_codebook(64, bits).distortion, at_64[bits - 1], 6e-5) << bits;
    EXPECT_NEAR(make_codebook(128, bits).distortion, at_128[bits - 1], 6e-5) << bits;
  }
}

TEST(Codebook, CodesAreTheNearestLevel) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  for (size_t bits : {1u, 2u, 3u, 4u, 8u}) {
    const Codebook book = make_codebook(96, bits);
    for (size_t trial = 0; trial < 2000; ++trial) {
      const float x = 2 * normal(random);
      float best = INFINITY;
      for (float level : book.levels) best = std::fmin(best, std::fabs(x - level));
      EXPECT_FLOAT_EQ(std::fabs(x - book.levels[book.code(x)]), best);
    }
  }
}

TEST(Rotation, IsOrthogonalAndInverts) {
  std::mt19937_64 random(1);
  for (size_t size : {1u, 2u, 3u, 7u, 20u, 64u, 80u, 96u, 112u, 128u, 192u, 256u, 512u, 576u}) {
    const Rotation rotation(size, 42);
    const std::vector<float> x = random_vector(random, size, 2.0);
    const std::vector<float> y = random_vector(random, size, 1.0);
    std::vector<float> a(size), b(size), back(size);
    rotation.apply(x.data(), a.data());
    rotation.apply(y.data(), b.data());
    EXPECT_NEAR(dot(a, b), dot(x, y), 2e-6) << size;
    EXPECT_NEAR(dot(a, a), 4.0, 4e-6) << size;
    rotation.invert(a.data(), back.data());
    for (size_t i = 0; i < size; ++i) EXPECT_NEAR(back[i], x[i], 2e-6) << size;
  }
}

// Files hold what a transform made, so no faster way to compute it may change a bit.
TEST(Rotation, HadamardIsThatOfItsDefinitionStepByStep) {
  std::mt19937_64 random(2);
  for (size_t size = 1; size <= kRotationSizeMax; size *= 2) {
    std::vector<float> fast = random_vector(random, size, 1.0);
    std::vector<float> plain = fast;
    hadamard_transform(fast.data(), size);
    for (size_t step = 1; step < size; step *= 2) {
      for (size_t i = 0; i < size; ++i) {
        if ((i & step) != 0) continue;
        const float a = plain[i];
        const float b = plain[i + step];
        plain[i] = a + b;
        plain[i + step] = a - b;
      }
    }
    EXPECT_EQ(fast, plain) << size;
  }
}

TEST(Rotation, HadamardTwiceIsTheIdentity) {
  std::mt19937_64 random(1);
  for (size_t size = 1; size <= 1024; size *= 2) {
    const std::vector<float> x = random_vector(random, size, 1.0);
    std::vector<float> y = x;
    hadamard_transform(y.data(), size);
    hadamard_transform(y.data(), size);
    for (size_t i = 0; i < size; ++i) EXPECT_NEAR(y[i] / static_cast<float>(size), x[i], 1e-6);
  }
}

// A vector with all its weight in one place is spread over all coordinates, also across blocks.
TEST(Rotation, SpreadsASpike) {
  for (size_t size : kSizes) {
    const Rotation rotation(size, 3);
    for (size_t at : {size_t{0}, size - 1}) {
      std::vector<float> x(size, 0.0f);
      x[at] = 1.0f;
      rotation.apply(x.data(), x.data());
      size_t used = 0;
      float largest = 0;
      for (float v : x) {
        used += std::fabs(v) > 0.05f / std::sqrt(static_cast<float>(size)) ? 1 : 0;
        largest = std::fmax(largest, std::fabs(v));
      }
      EXPECT_LT(largest, 0.75f) << size;
      EXPECT_GT(used, size / 4) << size;
    }
  }
}

TEST(MseCodec, DistortionIsTheCodebooks) {
  for (size_t size : kSizes) {
    for (size_t bits = 1; bits <= 4; ++bits) {
      const MseCodec codec(size, bits, 7, ScaleRule::kNorm);
      const double expected = codec.codebook().distortion;
      EXPECT_NEAR(measured_distortion(codec, 300000 / size), expected, 0.01 * expected)
          << size << " at " << bits << " bits";
    }
    EXPECT_LT(measured_distortion(MseCodec(size, 8, 7), 50), 1.2e-4);
  }
}

TEST(MseCodec, BytesAreCodesAndOneScale) {
  EXPECT_EQ(MseCodec(64, 4, 0).bytes(), 34u);
  EXPECT_EQ(MseCodec(128, 2, 0).bytes(), 34u);
  EXPECT_EQ(MseCodec(128, 3, 0).bytes(), 50u);
  EXPECT_EQ(MseCodec(256, 3, 0).bytes(), 98u);
  EXPECT_EQ(MseCodec(128, 8, 0).bytes(), 130u);
  EXPECT_EQ(ProdCodec(128, 4, 0).bytes(), 48u + 2 + 16 + 2);
  std::vector<size_t> quarter(32);
  for (size_t i = 0; i < quarter.size(); ++i) quarter[i] = 3 * i;
  EXPECT_EQ(OutlierCodec(128, quarter, 2, 0).bytes() * 8, 320u);  // 2.5 bits
  EXPECT_EQ(OutlierCodec(128, quarter, 3, 0).bytes() * 8, 448u);  // 3.5 bits
}

TEST(MseCodec, ScaleRulesKeepWhatTheyPromise) {
  std::mt19937_64 random(3);
  for (size_t bits = 2; bits <= 4; ++bits) {
    const MseCodec matched(128, bits, 1, ScaleRule::kNormMatched);
    const MseCodec unbiased(128, bits, 1, ScaleRule::kUnbiased);
    for (size_t trial = 0; trial < 50; ++trial) {
      const std::vector<float> x = random_vector(random, 128, 5.0);
      const std::vector<float> a = round_trip(matched, x);
      const std::vector<float> b = round_trip(unbiased, x);
      EXPECT_NEAR(std::sqrt(dot(a, a)), 5.0, 5.0 * 6e-4);
      EXPECT_NEAR(dot(b, x), 25.0, 25.0 * 6e-4);
    }
  }
}

// Variance of <q, x^> for unit vectors with the unbiased scale: D / (1 - D) / d.
TEST(MseCodec, UnbiasedScaleHasItsVariance) {
  constexpr size_t kSize = 128;
  std::mt19937_64 random(9);
  for (size_t bits = 2; bits <= 4; ++bits) {
    double squares = 0;
    double sum = 0;
    constexpr size_t kTrials = 6000;
    const MseCodec codec(kSize, bits, 11, ScaleRule::kUnbiased);
    for (size_t trial = 0; trial < kTrials; ++trial) {
      const std::vector<float> x = random_vector(random, kSize, 1.0);
      const std::vector<float> q = random_vector(random, kSize, 1.0);
      const double error = dot(q, round_trip(codec, x)) - dot(q, x);
      sum += error;
      squares += error * error;
    }
    const double d = codec.codebook().distortion;
    const double variance = d / (1 - d) / kSize;
    EXPECT_NEAR(squares / kTrials, variance, 0.07 * variance) << bits;
    EXPECT_LT(std::fabs(sum / kTrials), 3 * std::sqrt(variance / kTrials)) << bits;
  }
}

TEST(ProdCodec, IsUnbiasedAndBelowItsVarianceBound) {
  constexpr size_t kSize = 64;
  constexpr size_t kSeeds = 1500;
  constexpr size_t kPairs = 8;
  const double bound[] = {1.571, 0.571, 0.185, 0.0543};
  for (size_t bits = 1; bits <= 4; ++bits) {
    std::mt19937_64 random(bits);
    double sum = 0;
    double squares = 0;
    const std::vector<float> fixed_x = random_vector(random, kSize, 1.0);
    const std::vector<float> fixed_q = fixed_x;  // where a biased estimate would show most
    double fixed_sum = 0;
    double fixed_squares = 0;
    for (size_t seed = 0; seed < kSeeds; ++seed) {
      const ProdCodec codec(kSize, bits, counter_random(77, seed));
      for (size_t pair = 0; pair < kPairs; ++pair) {
        const std::vector<float> x = random_vector(random, kSize, 1.0);
        const std::vector<float> q = random_vector(random, kSize, 1.0);
        const double error = dot(q, round_trip(codec, x)) - dot(q, x);
        sum += error;
        squares += error * error;
      }
      const double error = dot(fixed_q, round_trip(codec, fixed_x)) - dot(fixed_q, fixed_x);
      fixed_sum += error;
      fixed_squares += error * error;
    }
    const double n = kSeeds * kPairs;
    EXPECT_LT(std::fabs(sum / n), 3 * std::sqrt(squares / n / n)) << bits;
    EXPECT_LT(std::fabs(fixed_sum / kSeeds), 3 * std::sqrt(fixed_squares / kSeeds / kSeeds))
        << bits;
    EXPECT_LT(squares / n, bound[bits - 1] / kSize) << bits;
    EXPECT_GT(squares / n, 0.8 * bound[bits - 1] / kSize) << bits;
  }
}

// A few channels that are ten times the others: the split puts its bits where they are.
TEST(OutlierCodec, BeatsEvenBitsOnOutliers) {
  std::mt19937_64 random(4);
  std::vector<size_t> outliers(32);
  for (size_t i = 0; i < outliers.size(); ++i) outliers[i] = 4 * i + 1;
  const OutlierCodec split(128, outliers, 2, 5);
  const MseCodec even(128, 2, 5);
  double split_error = 0;
  double even_error = 0;
  for (size_t trial = 0; trial < 200; ++trial) {
    std::vector<float> x = random_vector(random, 128, 1.0);
    for (size_t i : outliers) x[i] *= 10.0f;
    const std::vector<float> a = round_trip(split, x);
    const std::vector<float> b = round_trip(even, x);
    for (size_t i = 0; i < x.size(); ++i) {
      split_error += std::pow(static_cast<double>(x[i]) - a[i], 2);
      even_error += std::pow(static_cast<double>(x[i]) - b[i], 2);
    }
  }
  EXPECT_LT(split_error, 0.4 * even_error);
}

class Degenerate : public testing::Test {
 protected:
  Degenerate() {
    for (size_t bits : {1u, 4u, 8u}) {
      codecs_.push_back(std::make_unique<MseCodec>(80, bits, 1));
    }
    codecs_.push_back(std::make_unique<MseCodec>(80, 3, 1, ScaleRule::kUnbiased));
    codecs_.push_back(std::make_unique<ProdCodec>(80, 1, 1));
    codecs_.push_back(std::make_unique<ProdCodec>(80, 3, 1));
    codecs_.push_back(std::make_unique<OutlierCodec>(80, std::vector<size_t>{1, 5, 70, 79}, 2, 1));
  }
  std::vector<std::unique_ptr<VectorCodec>> codecs_;
};

TEST_F(Degenerate, ZerosComeBackAsZeros) {
  for (const auto& codec : codecs_) {
    for (float v : round_trip(*codec, std::vector<float>(80, 0.0f))) EXPECT_EQ(v, 0.0f);
  }
}

TEST_F(Degenerate, FaultsReachEveryOutputOfTheirPart) {
  const float faults[] = {NAN, INFINITY, -INFINITY};
  for (const auto& codec : codecs_) {
    for (float fault : faults) {
      std::vector<float> x(80, 1.0f);
      x[7] = fault;
      const std::vector<float> y = round_trip(*codec, x);
      for (size_t i = 0; i < y.size(); ++i) {
        if (i == 1 || i == 5 || i >= 70) continue;  // outliers are a part of their own
        EXPECT_TRUE(std::isnan(y[i])) << fault << ' ' << i;
      }
    }
  }
}

TEST_F(Degenerate, LargeAndSmallVectorsKeepTheirDirection) {
  std::mt19937_64 random(8);
  for (float size : {3e38f, 1e30f, 1e6f, 1.0f, 1e-3f}) {
    std::vector<float> x = random_vector(random, 80, 1.0);
    for (float& v : x) v *= size;
    const MseCodec codec(80, 4, 1);
    const std::vector<float> y = round_trip(codec, x);
    std::vector<float> unit = x;
    for (float& v : unit) v /= size;
    const double length = std::sqrt(dot(y, y));
    ASSERT_TRUE(std::isfinite(length)) << size;
    EXPECT_GT(dot(y, unit) / length, 0.99) << size;
    // The scale ends at the largest half.
    EXPECT_LE(length, static_cast<double>(kHalfMax) * 1.3 * std::sqrt(80.0)) << size;
  }
  for (float v : round_trip(MseCodec(80, 4, 1), std::vector<float>(80, 1e-30f))) EXPECT_EQ(v, 0);
}

TEST(HalfScale, RoundsToNearestAndSaturates) {
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float value = half_to_float(static_cast<uint16_t>(half));
    EXPECT_EQ(scale_to_half(value), half);
    const float next = half_to_float(static_cast<uint16_t>(half + 1));
    if (half + 1 == 0x7c00) break;
    EXPECT_EQ(scale_to_half(value + (next - value) * 0.49f), half);
    EXPECT_EQ(scale_to_half(value + (next - value) * 0.51f), half + 1);
    EXPECT_EQ(scale_to_half(value + (next - value) * 0.5f), half + half % 2);
  }
  EXPECT_EQ(scale_to_half(65520.0f), 0x7bff);
  EXPECT_EQ(scale_to_half(3e38f), 0x7bff);
  EXPECT_TRUE(std::isnan(half_to_float(scale_to_half(NAN))));
  EXPECT_TRUE(std::isnan(half_to_float(scale_to_half(INFINITY))));
}

TEST(Codes, PackAndUnpack) {
  std::mt19937_64 random(6);
  for (size_t bits = 1; bits <= 8; ++bits) {
    for (size_t count : {1u, 7u, 16u, 33u}) {
      std::vector<uint8_t> codes(count), back(count);
      for (uint8_t& c : codes) c = static_cast<uint8_t>(random() & ((1u << bits) - 1));
      std::vector<uint8_t> packed((count * bits + 7) / 8);
      pack_codes(codes.data(), count, bits, packed.data());
      unpack_codes(packed.data(), count, bits, back.data());
      EXPECT_EQ(codes, back) << bits;
    }
  }
}

}  // namespace
}  // namespace kvikk
