#include "sampling/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvikk {
namespace {

TEST(Numeric, ExpAgreesWithTheLibrary) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> far(-699, 0), near(-2, 0);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? far(generator) : near(generator);
    const long double expected = std::exp(static_cast<long double>(x));
    ASSERT_NEAR(static_cast<double>(exp_nonpositive(x) / expected), 1, 5e-16) << x;
  }
  EXPECT_EQ(exp_nonpositive(0), 1);
  EXPECT_EQ(exp_nonpositive(-0.0), 1);
  EXPECT_LT(exp_nonpositive(-std::numeric_limits<double>::infinity()), 1e-300);
  EXPECT_LT(exp_nonpositive(-1e300), 1e-300);
}

TEST(Numeric, LogAgreesWithTheLibrary) {
  std::mt19937_64 generator(2);
  std::uniform_real_distribution<double> exponent(-1000, 1000), unit(0, 1);
  for (int i = 0; i < 200000; ++i) {
    double x = std::exp2(exponent(generator));
    if (i % 3 == 1) x = unit(generator);
    if (i % 3 == 2) x = 1 + std::exp2(exponent(generator) / 20 - 50) * (i % 2 == 0 ? 1 : -1);
    if (!(x > 0) || std::isinf(x)) continue;
    const long double expected = std::log(static_cast<long double>(x));
    if (expected == 0) {
      ASSERT_EQ(log_positive(x), 0);
    } else {
      ASSERT_NEAR(static_cast<double>(log_positive(x) / expected), 1, 5e-16) << x;
    }
  }
  EXPECT_EQ(log_positive(1), 0);
}

TEST(Numeric, SumOfExpAtEveryLength) {
  std::mt19937 generator(3);
  std::normal_distribution<float> bell(0, 6);
  for (const size_t count : {1u, 2u, 7u, 8u, 9u, 63u, 255u, 256u, 257u, 1000u, 151936u}) {
    std::vector<float> logits(count);
    for (float& x : logits) x = bell(generator);
    if (count > 8) logits[5] = -std::numeric_limits<float>::infinity();
    const double top = *std::max_element(logits.begin(), logits.end());
    long double expected = 0;
    for (const float x : logits) expected += std::exp(static_cast<long double>(x) - top);
    EXPECT_NEAR(static_cast<double>(sum_exp(logits.data(), count, top) / expected), 1, 1e-14);
  }
}

TEST(Numeric, ExpInPlaceIsTheSameFunction) {
  std::vector<double> x, expected;
  for (int i = 0; i < 1001; ++i) x.push_back(-0.73 * i);
  for (const double v : x) expected.push_back(exp_nonpositive(v));
  exp_in_place(x.data(), x.size());
  EXPECT_EQ(x, expected);
}

}  // namespace
}  // namespace kvikk
