#include "codec/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace kvikk {

namespace {

// QL takes about two steps a value; this many mean that the matrix was not finite.
constexpr size_t kStepsMax = 200;

// Reduces `a` to diagonal and off-diagonal (off[i] couples i and i + 1). Returns Q [n, n] with
// a = Q T Q^T.
std::vector<double> reduce(std::vector<double>& a, size_t n, std::vector<double>& diagonal,
                           std::vector<double>& off) {
  std::vector<double> q(n * n);
  for (size_t i = 0; i < n; ++i) q[i * n + i] = 1;
  std::vector<double> v(n);
  std::vector<double> p(n);
  for (size_t k = 0; k + 2 < n; ++k) {
    double squares = 0;
    for (size_t i = k + 1; i < n; ++i) squares += a[i * n + k] * a[i * n + k];
    const double first = a[(k + 1) * n + k];
    if (squares - first * first <= 0) continue;  // nothing to clear
    const double alpha = first > 0 ? -std::sqrt(squares) : std::sqrt(squares);
    std::fill(v.begin(), v.end(), 0.0);
    double length = 0;
    for (size_t i = k + 1; i < n; ++i) {
      v[i] = a[i * n + k] - (i == k + 1 ? alpha : 0);
      length += v[i] * v[i];
    }
    const double beta = 2 / length;  // H = 1 - beta v v^T
    double dot = 0;
    for (size_t i = k; i < n; ++i) {
      p[i] = 0;
      for (size_t j = k + 1; j < n; ++j) p[i] += a[i * n + j] * v[j];
      p[i] *= beta;
      dot += p[i] * v[i];
    }
    for (size_t i = k; i < n; ++i) p[i] -= beta / 2 * dot * v[i];
    for (size_t i = k; i < n; ++i) {
      for (size_t j = k; j < n; ++j) a[i * n + j] -= v[i] * p[j] + p[i] * v[j];
    }
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = k + 1; j < n; ++j) sum += q[i * n + j] * v[j];
      for (size_t j = k + 1; j < n; ++j) q[i * n + j] -= beta * sum * v[j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    diagonal[i] = a[i * n + i];
    off[i] = i + 1 < n ? a[(i + 1) * n + i] : 0;
  }
  return q;
}

// Turns rows i and i + 1 of q: columns of Q, which lie together here because most of the time is
// spent on them.
void turn(std::vector<double>& q, size_t n, size_t i, double c, double s) {
  double* x = &q[i * n];
  double* y = x + n;
  for (size_t j = 0; j < n; ++j) {
    const double next = y[j];
    y[j] = s * x[j] + c * next;
    x[j] = c * x[j] - s * next;
  }
}

// q: the transpose of Q, [n, n].
void solve(std::vector<double>& d, std::vector<double>& e, std::vector<double>& q, size_t n) {
  for (size_t low = 0; low < n; ++low) {
    for (size_t step = 0;; ++step) {
      CHECK(step < kStepsMax);
      size_t end = low;
      for (; end + 1 < n; ++end) {
        const double scale = std::abs(d[end]) + std::abs(d[end + 1]);
        if (std::abs(e[end]) <= 1e-16 * scale) break;
      }
      if (end == low) break;
      double g = (d[low + 1] - d[low]) / (2 * e[low]);
      double r = std::hypot(g, 1.0);
      g = d[end] - d[low] + e[low] / (g + std::copysign(r, g));
      double s = 1;
      double c = 1;
      double p = 0;
      bool deflated = false;
      for (size_t i = end; i-- > low;) {
        const double f = s * e[i];
        const double b = c * e[i];
        r = std::hypot(f, g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[end] = 0;
          deflated = true;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        turn(q, n, i, c, s);
      }
      if (deflated) continue;
      d[low] -= p;
      e[low] = g;
      e[end] = 0;
    }
  }
}

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> matrix, size_t n) {
  CHECK(matrix.size() == n * n);
  std::vector<double> diagonal(n);
  std::vector<double> off(n);
  std::vector<double> q = reduce(matrix, n, diagonal, off);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) std::swap(q[i * n + j], q[j * n + i]);
  }
  solve(diagonal, off, q, n);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return diagonal[a] > diagonal[b]; });
  SymmetricEigen out;
  for (size_t i : order) {
    out.values.push_back(diagonal[i]);
    const auto row = q.begin() + static_cast<ptrdiff_t>(i * n);
    out.vectors.insert(out.vectors.end(), row, row + static_cast<ptrdiff_t>(n));
  }
  return out;
}

}  // namespace kvikk
