#include "codec/codebook.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvikk {

namespace {

// The density has no mass to speak of beyond this.
constexpr double kReach = 9.0;
constexpr size_t kIterationsMax = 20000;
constexpr double kSettled = 1e-11;

// The density's integrals, up to one common factor.
class SphereCoordinate {
 public:
  explicit SphereCoordinate(size_t dimensions)
      : d_(static_cast<double>(dimensions)), end_(std::min(std::sqrt(d_), kReach)) {
    for (size_t i = 0; i <= kSteps; ++i) {
      const double x = end_ * static_cast<double>(i) / kSteps;
      mass_.push_back(i == 0 ? 0 : mass_.back() + simpson(x - end_ / kSteps, x));
    }
  }
  double end() const { return end_; }
  // From 0 to x.
  double mass(double x) const {
    const double at = std::min(x / end_, 1.0) * kSteps;
    const size_t i = std::min(static_cast<size_t>(at), kSteps - 1);
    const double from = end_ * static_cast<double>(i) / kSteps;
    return mass_[i] + simpson(from, x);
  }
  // The integral of x times the density, from a to b.
  double moment(double a, double b) const {
    const double p = (d_ - 1) / 2;
    return d_ / (d_ - 1) * (std::pow(inside(a), p) - std::pow(inside(b), p));
  }
  double total() const { return mass_.back(); }

 private:
  static constexpr size_t kSteps = 2048;
  double inside(double x) const { return std::max(0.0, 1 - x * x / d_); }
  double density(double x) const { return std::pow(inside(x), (d_ - 3) / 2); }
  double simpson(double a, double b) const {
    return (b - a) / 6 * (density(a) + 4 * density((a + b) / 2) + density(b));
  }

  double d_;
  double end_;
  std::vector<double> mass_;  // [kSteps + 1]
};

// Lloyd's iteration on the positive half: levels become the means of their cells, cells end at the
// midpoints. Returns the levels; `distortion` is for variance 1.
std::vector<double> lloyd_max(const SphereCoordinate& density, size_t half, double& distortion) {
  std::vector<double> levels(half);
  for (size_t i = 0; i < half; ++i) {
    levels[i] = 3.0 * (static_cast<double>(i) + 0.5) / static_cast<double>(half);
  }
  for (size_t iteration = 0; iteration < kIterationsMax; ++iteration) {
    double change = 0;
    distortion = density.total();
    double from = 0;
    for (size_t i = 0; i < half; ++i) {
      const double to = i + 1 < half ? (levels[i] + levels[i + 1]) / 2 : density.end();
      const double mass = density.mass(to) - density.mass(from);
      const double mean = density.moment(from, to) / mass;
      change = std::max(change, std::abs(mean - levels[i]));
      levels[i] = mean;
      distortion -= mass * mean * mean;
      from = to;
    }
    distortion /= density.total();
    if (change < kSettled) break;
  }
  return levels;
}

}  // namespace

Codebook make_codebook(size_t dimensions, size_t bits) {
  CHECK(dimensions >= 4);
  CHECK((bits >= 1 && bits <= kCodebookBitsMax) || bits == 8);
  Codebook book;
  book.bits = bits;
  const size_t count = size_t{1} << bits;
  if (bits == 8) {
    const double step = 8.0 / 255;
    for (size_t i = 0; i < count; ++i) {
      book.levels.push_back(static_cast<float>((static_cast<double>(i) - 127.5) * step));
    }
    book.distortion = step * step / 12;
  } else {
    const SphereCoordinate density(dimensions);
    const std::vector<double> half = lloyd_max(density, count / 2, book.distortion);
    for (size_t i = half.size(); i > 0; --i) {
      book.levels.push_back(static_cast<float>(-half[i - 1]));
    }
    for (double level : half) book.levels.push_back(static_cast<float>(level));
  }
  for (size_t i = 0; i + 1 < count; ++i) {
    book.thresholds.push_back((book.levels[i] + book.levels[i + 1]) / 2);
  }
  return book;
}

}  // namespace kvikk
