#include "kv/fitted_basis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/rotation.h"
#include "codec/symmetric_eigen.h"

namespace kvikk {

namespace {

// Directions that queries use less than this, of the most used one, count as used this much: the
// basis must have an inverse.
constexpr double kQueryFloor = 1e-4;
constexpr double kVarianceFloor = 1e-12;

struct Choice {
  uint32_t bits;
  double distortion;  // for variance 1
};
constexpr Choice kChoices[] = {{0, 1.0}, {2, 0.117482}, {3, 0.034548}, {4, 0.009501}, {8, 1.3e-4}};

// a b for [n, n] matrices, b symmetric.
std::vector<double> multiply(const std::vector<double>& a, const std::vector<double>& b, size_t n) {
  std::vector<double> out(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t k = 0; k < n; ++k) sum += a[i * n + k] * b[j * n + k];
      out[i * n + j] = sum;
    }
  }
  return out;
}

// S^power, its eigenvalues kept above the floor.
std::vector<double> matrix_power(const SymmetricEigen& e, size_t n, double power) {
  std::vector<double> out(n * n);
  for (size_t v = 0; v < n; ++v) {
    const double value = std::pow(std::max(e.values[v], e.values[0] * kQueryFloor), power);
    for (size_t i = 0; i < n; ++i) {
      const double scaled = value * e.vectors[v * n + i];
      for (size_t j = 0; j < n; ++j) out[i * n + j] += scaled * e.vectors[v * n + j];
    }
  }
  return out;
}

// Rows of each group through a Hadamard transform.
std::vector<float> mix_groups(const std::vector<double>& rows, size_t n) {
  std::vector<float> out(n * n);
  float column[kFittedGroup];
  const float factor = 1.0f / std::sqrt(static_cast<float>(kFittedGroup));
  for (size_t group = 0; group < n; group += kFittedGroup) {
    for (size_t d = 0; d < n; ++d) {
      for (size_t i = 0; i < kFittedGroup; ++i) {
        column[i] = static_cast<float>(rows[(group + i) * n + d]);
      }
      hadamard_transform(column, kFittedGroup);
      for (size_t i = 0; i < kFittedGroup; ++i) out[(group + i) * n + d] = column[i] * factor;
    }
  }
  return out;
}

}  // namespace

std::vector<uint32_t> share_bits(const std::vector<double>& variances, uint32_t bits) {
  const size_t groups = variances.size();
  const size_t total = groups * bits;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // least[g][b]: the error of the first g groups with b bits together.
  std::vector<std::vector<double>> least(groups + 1, std::vector<double>(total + 1, kNever));
  std::vector<std::vector<uint32_t>> chosen(groups + 1, std::vector<uint32_t>(total + 1));
  std::fill(least[0].begin(), least[0].end(), 0.0);
  for (size_t g = 0; g < groups; ++g) {
    for (size_t b = 0; b <= total; ++b) {
      for (const Choice& choice : kChoices) {
        if (choice.bits > b) continue;
        const double error = least[g][b - choice.bits] + variances[g] * choice.distortion;
        if (error >= least[g + 1][b]) continue;
        least[g + 1][b] = error;
        chosen[g + 1][b] = choice.bits;
      }
    }
  }
  std::vector<uint32_t> out(groups);
  for (size_t g = groups, left = total; g > 0; --g) {
    out[g - 1] = chosen[g][left];
    left -= out[g - 1];
  }
  std::sort(out.begin(), out.end(), std::greater<>());
  return out;
}

void fit_basis(const std::vector<double>& query_moments, const std::vector<double>& key_covariance,
               size_t size, uint32_t bits, KeyConditioning& out) {
  CHECK(size % kFittedGroup == 0);
  const SymmetricEigen queries = symmetric_eigen(query_moments, size);
  if (!(queries.values[0] > 0)) return;  // no query looks here: the plain coder will do
  const std::vector<double> root = matrix_power(queries, size, 0.5);
  const std::vector<double> inverse = matrix_power(queries, size, -0.5);
  std::vector<double> weighted = multiply(multiply(root, key_covariance, size), root, size);
  for (size_t i = 0; i < size; ++i) {  // symmetric but for rounding
    for (size_t j = 0; j < i; ++j) {
      const double mean = (weighted[i * size + j] + weighted[j * size + i]) / 2;
      weighted[i * size + j] = weighted[j * size + i] = mean;
    }
  }
  const SymmetricEigen basis = symmetric_eigen(std::move(weighted), size);
  out.forward = mix_groups(multiply(basis.vectors, root, size), size);
  out.backward = mix_groups(multiply(basis.vectors, inverse, size), size);
  std::vector<double> variances;
  for (size_t group = 0; group < size; group += kFittedGroup) {
    double sum = 0;
    for (size_t i = 0; i < kFittedGroup; ++i) sum += std::max(basis.values[group + i], 0.0);
    variances.push_back(std::max(sum / kFittedGroup, kVarianceFloor));
  }
  const std::vector<uint32_t> shares = share_bits(variances, bits);
  out.layout = {};
  size_t segment = 0;
  for (size_t g = 0; g < shares.size(); ++g) {
    if (g > 0 && shares[g] != shares[g - 1]) ++segment;
    CHECK(segment < kCodedSegmentsMax);
    out.layout.segments[segment].bits = shares[g];
    out.layout.segments[segment].dims += kFittedGroup;
    for (size_t i = 0; i < kFittedGroup; ++i) {
      out.deviation.push_back(static_cast<float>(std::sqrt(variances[g])));
    }
  }
}

}  // namespace kvikk
