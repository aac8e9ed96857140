// The fitted basis keeps scores, sorts what it codes, and spends its bits as well as can be.

#include "kv/fitted_basis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace kvikk {
namespace {

constexpr double kDistortion[] = {1.0, 0, 0.117482, 0.034548, 0.009501, 0, 0, 0, 1.3e-4};

double error_of(const std::vector<double>& variances, const std::vector<uint32_t>& bits) {
  double error = 0;
  for (size_t i = 0; i < bits.size(); ++i) error += variances[i] * kDistortion[bits[i]];
  return error;
}

// Every way to share, by counting in base 5.
double least_error(const std::vector<double>& variances, size_t total) {
  constexpr uint32_t kBits[] = {0, 2, 3, 4, 8};
  double least = INFINITY;
  const auto ways = static_cast<size_t>(std::pow(5, variances.size()));
  for (size_t way = 0; way < ways; ++way) {
    std::vector<uint32_t> bits;
    size_t sum = 0;
    for (size_t rest = way; bits.size() < variances.size(); rest /= 5) {
      bits.push_back(kBits[rest % 5]);
      sum += bits.back();
    }
    if (sum <= total) least = std::min(least, error_of(variances, bits));
  }
  return least;
}

TEST(ShareBits, IsTheBestWay) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> exponent(-4, 2);
  for (uint32_t bits : {2u, 3u, 4u}) {
    for (size_t trial = 0; trial < 8; ++trial) {
      std::vector<double> variances(5);
      for (double& v : variances) v = std::pow(10.0, exponent(random));
      std::sort(variances.begin(), variances.end(), std::greater<>());
      const std::vector<uint32_t> shares = share_bits(variances, bits);
      size_t sum = 0;
      for (size_t i = 0; i < shares.size(); ++i) {
        sum += shares[i];
        if (i > 0) {
          EXPECT_LE(shares[i], shares[i - 1]);
        }
      }
      EXPECT_LE(sum, 5 * bits);
      EXPECT_NEAR(error_of(variances, shares), least_error(variances, 5 * bits), 1e-12);
    }
  }
}

TEST(FittedBasis, KeepsScoresAndSortsVariances) {
  constexpr size_t kSize = 64;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  // Keys and queries of correlated dims of very different sizes.
  std::vector<double> mix(kSize * kSize);
  for (double& m : mix) m = normal(random);
  const auto draw = [&](double slope) {
    std::vector<float> x(kSize);
    std::vector<double> z(kSize);
    for (size_t i = 0; i < kSize; ++i) z[i] = normal(random) * std::exp(-slope * i);
    for (size_t i = 0; i < kSize; ++i) {
      double sum = 0;
      for (size_t j = 0; j < kSize; ++j) sum += mix[i * kSize + j] * z[j];
      x[i] = static_cast<float>(sum);
    }
    return x;
  };
  std::vector<double> moments(kSize * kSize), covariance(kSize * kSize);
  for (size_t n = 0; n < 500; ++n) {
    const std::vector<float> q = draw(0.03);
    const std::vector<float> k = draw(0.08);
    for (size_t i = 0; i < kSize * kSize; ++i) {
      moments[i] += static_cast<double>(q[i / kSize]) * q[i % kSize] / 500;
      covariance[i] += static_cast<double>(k[i / kSize]) * k[i % kSize] / 500;
    }
  }
  KeyConditioning c;
  fit_basis(moments, covariance, kSize, 4, c);
  ASSERT_EQ(c.forward.size(), kSize * kSize);
  EXPECT_EQ(coded_dims(c.layout), kSize);
  size_t bits = 0;
  for (const CodedSegment& s : c.layout.segments) bits += s.bits * s.dims;
  EXPECT_LE(bits, 4 * kSize);
  EXPECT_GT(bits, 3 * kSize);
  for (size_t i = 1; i < kSize; ++i) EXPECT_LE(c.deviation[i], c.deviation[i - 1]);
  double squares = 0;
  for (size_t n = 0; n < 200; ++n) {
    const std::vector<float> q = draw(0.03);
    const std::vector<float> k = draw(0.08);
    double direct = 0;
    double fitted = 0;
    double size = 0;
    for (size_t i = 0; i < kSize; ++i) {
      double y = 0;
      double p = 0;
      for (size_t d = 0; d < kSize; ++d) {
        y += static_cast<double>(c.forward[i * kSize + d]) * k[d];
        p += static_cast<double>(c.backward[i * kSize + d]) * q[d];
      }
      direct += static_cast<double>(q[i]) * k[i];
      fitted += y * p;
      size += std::fabs(y * p);
      squares += y * y / (c.deviation[i] * static_cast<double>(c.deviation[i]));
    }
    EXPECT_NEAR(fitted, direct, 1e-4 * size);
  }
  EXPECT_NEAR(squares / 200 / kSize, 1.0, 0.2);  // deviations are those of the coordinates
}

TEST(FittedBasis, NoQueriesNoBasis) {
  KeyConditioning c;
  fit_basis(std::vector<double>(256), std::vector<double>(256, 1.0), 16, 4, c);
  EXPECT_TRUE(c.forward.empty());
}

}  // namespace
}  // namespace kvikk
