#pragma once
// exp and log in float64, and sums of exp over a row of logits. The standard library's versions
// differ in the last bit between machines (it picks a variant per CPU), which would make a seed
// draw differently there; these use only IEEE additions, products and divisions in a fixed order,
// and so agree everywhere.

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvikk {

// Exponents below this count as this: e^-700 = 1e-304, which no sum beside a 1 can notice.
inline constexpr double kLowestExponent = -700;

// e^x for x in [kLowestExponent, 0]; relative error below 4e-16. Without a branch, so that a loop
// over it is vectorised; clamping in the same loop would bring g++ to make one.
inline double exp_clamped(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits, so k * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRoundToInteger =
      0x1.8p52;  // adding it leaves the rounded integer in the low bits
  const double shifted = x * kLog2E + kRoundToInteger;
  const double k = shifted - kRoundToInteger;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  // The Taylor series to r^12 in even and odd parts, for shorter chains of dependent operations.
  const double s = r * r;
  double even = 1.0 / 479001600;
  even = even * s + 1.0 / 3628800;
  even = even * s + 1.0 / 40320;
  even = even * s + 1.0 / 720;
  even = even * s + 1.0 / 24;
  even = even * s + 1.0 / 2;
  double odd = 1.0 / 39916800;
  odd = odd * s + 1.0 / 362880;
  odd = odd * s + 1.0 / 5040;
  odd = odd * s + 1.0 / 120;
  odd = odd * s + 1.0 / 6;
  const double p = 1.0 + (r + s * (even + r * odd));
  // Times 2^k: k is added to the exponent's bits.
  const uint64_t bits = std::bit_cast<uint64_t>(p) + (std::bit_cast<uint64_t>(shifted) << 52);
  return std::bit_cast<double>(bits);
}

// The same for any x <= 0, down to -infinity.
inline double exp_nonpositive(double x) {
  return exp_clamped(x > kLowestExponent ? x : kLowestExponent);
}

// The natural logarithm of a positive, normal x; error below 2 units in the last place.
inline double log_positive(double x) {
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  // x = m * 2^k with m in [sqrt(1/2), sqrt(2)).
  const int64_t k = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(k) << 52));
  // log(m) = 2 atanh(t), t = (m - 1) / (m + 1), |t| < 0.172.
  const double f = m - 1;
  const double t = f / (m + 1);
  const double s = t * t;
  double series = 1.0 / 21;
  for (int n = 19; n >= 3; n -= 2) series = series * s + 1.0 / n;
  // 2t = f - t*f, and the correction is small: no digits are lost near m = 1.
  const double log_m = f - t * (f - 2 * s * series);
  return static_cast<double>(k) * kLn2High + (static_cast<double>(k) * kLn2Low + log_m);
}

// Sum of exp(logits[i] - shift) over [count], in a fixed order; shift >= every logit.
double sum_exp(const float* logits, size_t count, double shift);

// x[i] = exp(x[i]) over [count]; each x <= 0.
void exp_in_place(double* x, size_t count);

}  // namespace kvikk
