#include "search/fit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/counter_random.h"
#include "codec/symmetric_eigen.h"

namespace kvikk {

namespace {

constexpr uint64_t kAxesSeed = 11;
constexpr uint64_t kSampleSeed = 13;
constexpr size_t kGroupAxes = 64;
constexpr size_t kCovarianceRows = 256;  // float32 sums are that long, then they join in float64
constexpr size_t kColumns = 32;          // a multiple of what the kernels need

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct Moments {
  std::vector<double> mean;        // [d]
  std::vector<double> covariance;  // [d, d]
};

Moments moments_of(const Kernels& kernels, ThreadPool& pool, const std::vector<float>& rows,
                   size_t count, size_t d) {
  Moments out;
  out.mean.resize(d);
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < d; ++i) out.mean[i] += rows[r * d + i];
  }
  for (double& m : out.mean) m /= static_cast<double>(count);
  out.covariance.resize(d * d);
  const size_t stride = round_up(d, kColumns);
  std::vector<float> centred(kCovarianceRows * stride);  // [rows, stride]
  std::vector<float> across(d * kCovarianceRows);        // [d, rows]
  std::vector<float> part(d * stride);
  for (size_t first = 0; first < count; first += kCovarianceRows) {
    const size_t n = std::min(kCovarianceRows, count - first);
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < d; ++i) {
        const double x = rows[(first + r) * d + i] - out.mean[i];
        centred[r * stride + i] = static_cast<float>(x);
        across[i * n + r] = static_cast<float>(x);
      }
    }
    constexpr size_t kRows = 32;
    pool.parallel_for((d + kRows - 1) / kRows, [&](size_t piece, int) {
      const size_t row = piece * kRows;
      SearchProductArgs args{&across[row * n],
                             n,
                             centred.data(),
                             stride,
                             &part[row * stride],
                             stride,
                             std::min(kRows, d - row),
                             d,
                             n};
      kernels.search_product(args);
      for (size_t i = row; i < row + args.rows; ++i) {
        for (size_t j = 0; j < d; ++j) out.covariance[i * d + j] += part[i * stride + j];
      }
    });
  }
  // Sums of products in another order differ in their last bits: make it symmetric.
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double mean = (out.covariance[i * d + j] + out.covariance[j * d + i]) / 2;
      out.covariance[i * d + j] = out.covariance[j * d + i] = mean / static_cast<double>(count);
    }
  }
  return out;
}

// One bit more for the group whose error, weighted by its variance, falls the most a bit of
// memory, until the budget of an unfitted code is spent. An error in a group moves scores by the
// queries' variance in it, which is taken to be like the vectors'.
void share_out_bits(std::vector<CodeGroup>& groups, size_t bits, size_t dimensions) {
  std::vector<double> distortion = {1.0};
  for (size_t b = 1; b <= kSearchTableBitsMax; ++b) {
    distortion.push_back(make_codebook(std::max<size_t>(dimensions, 4), b).distortion);
  }
  size_t left = bits * round_up(dimensions, kSearchDims);
  for (;;) {
    CodeGroup* best = nullptr;
    double best_gain = 0;
    for (CodeGroup& group : groups) {
      if (group.bits == kSearchTableBitsMax || group.padded() > left) continue;
      const double variance = group.sigma * group.sigma;
      const double gain = variance * variance *
                          (distortion[group.bits] - distortion[group.bits + 1]) *
                          static_cast<double>(group.dims) / static_cast<double>(group.padded());
      if (gain > best_gain) {
        best_gain = gain;
        best = &group;
      }
    }
    if (best == nullptr) break;
    ++best->bits;
    left -= best->padded();
  }
}

// Writes `count` axes from `first` on, rotated at random, to columns from `column` on.
void put_axes(const SymmetricEigen& eigen, size_t first, size_t count, size_t column,
              VectorTransform& out) {
  const size_t d = out.dimensions;
  const Rotation rotation(count, kAxesSeed + first);
  std::vector<float> across(count);
  for (size_t i = 0; i < d; ++i) {
    for (size_t a = 0; a < count; ++a) {
      across[a] = static_cast<float>(eigen.vectors[(first + a) * d + i]);
    }
    rotation.apply(across.data(), &out.axes[i * out.axes_stride + column]);
  }
}

}  // namespace

std::vector<size_t> sample_rows(size_t count, size_t wanted) {
  std::vector<size_t> rows;
  if (count <= wanted) {
    for (size_t i = 0; i < count; ++i) rows.push_back(i);
    return rows;
  }
  // One of each of `wanted` equal stretches, at a random place in it.
  for (size_t i = 0; i < wanted; ++i) {
    const size_t begin = count * i / wanted;
    const size_t end = count * (i + 1) / wanted;
    rows.push_back(begin + counter_random(kSampleSeed, i) % (end - begin));
  }
  return rows;
}

double to_unit(const float* vector, size_t dimensions, float* out) {
  double squares = 0;
  for (size_t i = 0; i < dimensions; ++i) squares += static_cast<double>(vector[i]) * vector[i];
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : 1;
  for (size_t i = 0; i < dimensions; ++i) out[i] = static_cast<float>(vector[i] * factor);
  return squares;
}

Result<std::vector<float>> ready_sample(std::span<const float> sample, size_t dimensions,
                                        size_t wanted, Metric metric) {
  const size_t d = dimensions;
  std::vector<float> rows;
  std::vector<float> unit(d);
  for (const size_t row : sample_rows(sample.size() / d, wanted)) {
    const float* x = sample.data() + row * d;
    const double squares = to_unit(x, d, unit.data());
    if (!(squares <= kVectorLengthMax * kVectorLengthMax)) {
      return invalid_argument("vector " + std::to_string(row) +
                              " of the sample has a NaN or an infinity, or is too long");
    }
    const float* ready = metric == Metric::kCosine ? unit.data() : x;
    rows.insert(rows.end(), ready, ready + d);
  }
  return rows;
}

Result<VectorCoder> fit_coder(const Kernels& kernels, ThreadPool& pool,
                              const std::vector<float>& rows, size_t dimensions, size_t bits,
                              Metric metric) {
  const size_t d = dimensions;
  if (d > kFitDimensionsMax) {
    return invalid_argument("codes are fitted to at most " + std::to_string(kFitDimensionsMax) +
                            " dimensions, these are " + std::to_string(d));
  }
  if (rows.size() / d < kFitVectorsMin) {
    return invalid_argument("a sample to fit to has at least " + std::to_string(kFitVectorsMin) +
                            " vectors, this one has " + std::to_string(rows.size() / d));
  }
  const Moments moments = moments_of(kernels, pool, rows, rows.size() / d, d);
  const SymmetricEigen eigen = symmetric_eigen(moments.covariance, d);
  if (!(eigen.values[0] > 0)) {
    return invalid_argument("the vectors of the sample are all the same");
  }
  std::vector<CodeGroup> groups;
  for (size_t first = 0; first < d; first += kGroupAxes) {
    CodeGroup group;
    group.dims = std::min(kGroupAxes, d - first);
    double variance = 0;
    for (size_t a = 0; a < group.dims; ++a) variance += std::max(eigen.values[first + a], 0.0);
    // Never 0: a vector that is not like the sample may have something there.
    group.sigma =
        std::sqrt(std::max(variance / static_cast<double>(group.dims), 1e-12 * eigen.values[0]));
    group.bits = bits == 8 ? 8 : 0;
    groups.push_back(group);
  }
  if (bits != 8) share_out_bits(groups, bits, d);

  VectorTransform transform;
  transform.dimensions = d;
  transform.mean.assign(moments.mean.begin(), moments.mean.end());
  size_t kept = 0;
  for (const CodeGroup& group : groups) kept += group.bits > 0 ? group.dims : 0;
  transform.axes_stride = round_up(kept, kColumns);
  transform.axes.resize(d * transform.axes_stride);
  size_t axis = 0;
  size_t column = 0;
  for (const CodeGroup& group : groups) {
    if (group.bits > 0) {
      put_axes(eigen, axis, group.dims, column, transform);
      column += group.dims;
    }
    axis += group.dims;
  }
  std::erase_if(groups, [](const CodeGroup& group) { return group.bits == 0; });
  return VectorCoder(std::move(transform), CodeLayout::make(std::move(groups), d), metric);
}

}  // namespace kvikk
