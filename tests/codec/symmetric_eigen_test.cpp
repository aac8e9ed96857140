#include "codec/symmetric_eigen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvikk {
namespace {

// Random matrices, some with repeated and some with tiny eigenvalues.
TEST(SymmetricEigen, SolvesAndIsOrthogonal) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (size_t n : {1u, 2u, 3u, 16u, 64u, 128u}) {
    for (size_t rank : {n, (n + 1) / 2, size_t{1}}) {
      std::vector<double> a(n * n);
      for (size_t r = 0; r < rank; ++r) {
        std::vector<double> x(n);
        for (double& v : x) v = normal(random) * std::pow(0.7, static_cast<double>(r));
        for (size_t i = 0; i < n * n; ++i) a[i] += x[i / n] * x[i % n];
      }
      const SymmetricEigen e = symmetric_eigen(a, n);
      double trace = 0;
      for (size_t i = 0; i < n; ++i) trace += a[i * n + i];
      for (size_t i = 0; i < n; ++i) {
        if (i > 0) {
          EXPECT_LE(e.values[i], e.values[i - 1]);
        }
        for (size_t row = 0; row < n; ++row) {
          double sum = 0;
          for (size_t j = 0; j < n; ++j) sum += a[row * n + j] * e.vectors[i * n + j];
          ASSERT_NEAR(sum, e.values[i] * e.vectors[i * n + row], 1e-12 * (1 + trace)) << n;
        }
        for (size_t j = 0; j <= i; ++j) {
          double dot = 0;
          for (size_t k = 0; k < n; ++k) dot += e.vectors[i * n + k] * e.vectors[j * n + k];
          ASSERT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-11) << n;
        }
      }
    }
  }
}

TEST(SymmetricEigen, DiagonalAndZero) {
  EXPECT_EQ(symmetric_eigen({1, 0, 0, 3}, 2).values, (std::vector<double>{3, 1}));
  EXPECT_EQ(symmetric_eigen(std::vector<double>(16), 4).values, (std::vector<double>(4)));
}

}  // namespace
}  // namespace kvikk
