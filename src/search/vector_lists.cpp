#include "search/vector_lists.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "search/fit.h"

namespace kvikk {

namespace {

constexpr size_t kColumns = 32;     // a multiple of what the kernels need
constexpr size_t kTaskRows = 64;    // of one task of the thread pool
constexpr size_t kRounds = 12;      // of k-means: later ones move little
constexpr size_t kSampleRows = 64;  // of a list
constexpr size_t kSampleBytesMax = size_t{1} << 30;
// The default number of probes finds this part of the kProbeNeighbors nearest of up to
// kProbeQueries vectors of the sample among kProbeRows others.
constexpr double kProbeRecall = 0.95;
constexpr size_t kProbeNeighbors = 10;
constexpr size_t kProbeQueries = 256;
constexpr size_t kProbeRows = 16384;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

std::vector<float> pick_rows(std::span<const float> rows, size_t d, size_t wanted) {
  std::vector<float> out;
  for (const size_t row : sample_rows(rows.size() / d, wanted)) {
    out.insert(out.end(), &rows[row * d], &rows[row * d] + d);
  }
  return out;
}

// A list that got nothing takes half of the largest one: both centroids step aside a little.
void split_largest(std::vector<float>& centroids, std::vector<size_t>& counts, size_t empty,
                   size_t d) {
  const auto largest =
      static_cast<size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
  constexpr float kStep = 1.0f / 1024;
  for (size_t i = 0; i < d; ++i) {
    const float x = centroids[largest * d + i];
    const float step = i % 2 == 0 ? kStep : -kStep;
    centroids[empty * d + i] = x * (1 + step);
    centroids[largest * d + i] = x * (1 - step);
  }
  counts[empty] = counts[largest] / 2;
  counts[largest] -= counts[empty];
}

// The mean of what lies in each list.
std::vector<float> means(std::span<const float> rows, const std::vector<uint32_t>& assigned,
                         size_t lists, size_t d) {
  std::vector<double> sums(lists * d);
  std::vector<size_t> counts(lists);
  for (size_t r = 0; r < assigned.size(); ++r) {
    double* sum = &sums[assigned[r] * d];
    for (size_t i = 0; i < d; ++i) sum[i] += rows[r * d + i];
    ++counts[assigned[r]];
  }
  std::vector<float> out(lists * d);
  for (size_t l = 0; l < lists; ++l) {
    if (counts[l] == 0) continue;
    const double part = 1 / static_cast<double>(counts[l]);
    for (size_t i = 0; i < d; ++i) out[l * d + i] = static_cast<float>(sums[l * d + i] * part);
  }
  for (size_t l = 0; l < lists; ++l) {
    if (counts[l] == 0) split_largest(out, counts, l, d);
  }
  return out;
}

// Scores of all rows for some queries among them: out [rows, kProbeQueries].
void score_rows(const Kernels& kernels, ThreadPool& pool, const std::vector<float>& rows, size_t d,
                const std::vector<size_t>& queries, Metric metric, std::vector<float>& out) {
  const size_t n = rows.size() / d;
  std::vector<float> across(d * kProbeQueries);
  for (size_t q = 0; q < queries.size(); ++q) {
    for (size_t i = 0; i < d; ++i) across[i * kProbeQueries + q] = rows[queries[q] * d + i];
  }
  out.resize(n * kProbeQueries);
  pool.parallel_for((n + kTaskRows - 1) / kTaskRows, [&](size_t task, int) {
    const size_t first = task * kTaskRows;
    const size_t count = std::min(kTaskRows, n - first);
    kernels.search_product({&rows[first * d], d, across.data(), kProbeQueries,
                            &out[first * kProbeQueries], kProbeQueries, count, queries.size(), d});
    for (size_t r = first; r < first + count && metric == Metric::kL2; ++r) {
      double squares = 0;
      for (size_t i = 0; i < d; ++i)
        squares += static_cast<double>(rows[r * d + i]) * rows[r * d + i];
      for (size_t q = 0; q < queries.size(); ++q) {
        out[r * kProbeQueries + q] -= static_cast<float>(squares / 2);
      }
    }
  });
}

size_t default_probes(const Kernels& kernels, ThreadPool& pool, std::span<const float> sample,
                      const VectorLists& lists, size_t d, Metric metric) {
  const std::vector<float> rows = pick_rows(sample, d, kProbeRows);
  const size_t n = rows.size() / d;
  const std::vector<uint32_t> assigned = lists.assign(kernels, pool, rows);
  const std::vector<size_t> queries = sample_rows(n, kProbeQueries);
  std::vector<float> scores;
  score_rows(kernels, pool, rows, d, queries, metric, scores);
  std::vector<uint32_t> places;
  std::vector<uint32_t> order(n);
  std::vector<float> products;
  for (size_t q = 0; q < queries.size(); ++q) {
    std::iota(order.begin(), order.end(), 0u);
    scores[queries[q] * kProbeQueries + q] = -INFINITY;  // itself
    const size_t wanted = std::min(kProbeNeighbors, n - 1);
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(wanted), order.end(),
                      [&](uint32_t a, uint32_t b) {
                        const float sa = scores[a * kProbeQueries + q];
                        const float sb = scores[b * kProbeQueries + q];
                        return sa != sb ? sa > sb : a < b;
                      });
    lists.products(kernels, &rows[queries[q] * d], 1, products);
    const std::vector<uint32_t> place = lists.places(products.data(), metric);
    for (size_t i = 0; i < wanted; ++i) places.push_back(place[assigned[order[i]]]);
  }
  return probes_for_places(std::move(places), kProbeRecall);
}

}  // namespace

size_t list_sample_rows(size_t lists, size_t dimensions) {
  return std::min(std::max(kFitVectorsMax, kSampleRows * lists),
                  kSampleBytesMax / (sizeof(float) * dimensions));
}

size_t probes_for_places(std::vector<uint32_t> places, double recall) {
  if (places.empty()) return 1;
  const auto wanted = static_cast<size_t>(std::ceil(recall * static_cast<double>(places.size())));
  const size_t last = std::clamp(wanted, size_t{1}, places.size()) - 1;
  std::nth_element(places.begin(), places.begin() + static_cast<ptrdiff_t>(last), places.end());
  return size_t{places[last]} + 1;
}

Result<VectorLists> VectorLists::make(const Kernels& kernels, ThreadPool& pool,
                                      std::span<const float> rows, size_t dimensions, size_t lists,
                                      Metric metric) {
  const size_t d = dimensions;
  const size_t n = rows.size() / d;
  CHECK(lists >= 1);
  if (n < kListVectorsMin * lists) {
    return invalid_argument("a sample for " + std::to_string(lists) + " lists has at least " +
                            std::to_string(kListVectorsMin * lists) + " vectors, this one has " +
                            std::to_string(n));
  }
  VectorLists out(pick_rows(rows, d, lists), d, 1);
  std::vector<uint32_t> before;
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<uint32_t> assigned = out.assign(kernels, pool, rows);
    if (assigned == before) break;
    out = VectorLists(means(rows, assigned, lists, d), d, 1);
    before = std::move(assigned);
  }
  out.probes_ = std::min(default_probes(kernels, pool, rows, out, d, metric), lists);
  return out;
}

VectorLists::VectorLists(std::vector<float> centroids, size_t dimensions, size_t probes)
    : centroids_(std::move(centroids)), dimensions_(dimensions), probes_(probes) {
  const size_t lists = centroids_.size() / dimensions;
  stride_ = round_up(lists, kColumns);
  across_.resize(dimensions * stride_);
  for (size_t l = 0; l < lists; ++l) {
    double squares = 0;
    for (size_t i = 0; i < dimensions; ++i) {
      const float x = centroids_[l * dimensions + i];
      across_[i * stride_ + l] = x;
      squares += static_cast<double>(x) * x;
    }
    half_squares_.push_back(static_cast<float>(squares / 2));
  }
}

void VectorLists::products(const Kernels& kernels, const float* rows, size_t count,
                           std::vector<float>& out) const {
  out.resize(count * stride_);
  kernels.search_product({rows, dimensions_, across_.data(), stride_, out.data(), stride_, count,
                          this->count(), dimensions_});
}

uint32_t VectorLists::nearest(const float* products) const {
  uint32_t best = 0;
  for (uint32_t l = 1; l < count(); ++l) {
    if (products[l] - half_squares_[l] > products[best] - half_squares_[best]) best = l;
  }
  return best;
}

std::vector<uint32_t> VectorLists::assign(const Kernels& kernels, ThreadPool& pool,
                                          std::span<const float> rows) const {
  const size_t n = rows.size() / dimensions_;
  std::vector<uint32_t> out(n);
  pool.parallel_for((n + kTaskRows - 1) / kTaskRows, [&](size_t task, int) {
    const size_t first = task * kTaskRows;
    const size_t count = std::min(kTaskRows, n - first);
    std::vector<float> scores;
    products(kernels, &rows[first * dimensions_], count, scores);
    for (size_t r = 0; r < count; ++r) out[first + r] = nearest(&scores[r * stride_]);
  });
  return out;
}

float VectorLists::score(const float* products, uint32_t list, Metric metric) const {
  return metric == Metric::kL2 ? products[list] - half_squares_[list] : products[list];
}

std::vector<uint32_t> VectorLists::best(const float* products, Metric metric, size_t first,
                                        size_t last) const {
  std::vector<uint32_t> lists(count());
  std::iota(lists.begin(), lists.end(), 0u);
  last = std::min(last, lists.size());
  first = std::min(first, last);
  const auto better = [&](uint32_t a, uint32_t b) {
    const float sa = score(products, a, metric);
    const float sb = score(products, b, metric);
    return sa != sb ? sa > sb : a < b;
  };
  const auto end = lists.begin() + static_cast<ptrdiff_t>(last);
  if (last < lists.size()) std::nth_element(lists.begin(), end, lists.end(), better);
  std::sort(lists.begin(), end, better);
  return {lists.begin() + static_cast<ptrdiff_t>(first), end};
}

std::vector<uint32_t> VectorLists::places(const float* products, Metric metric) const {
  const std::vector<uint32_t> order = best(products, metric, 0, count());
  std::vector<uint32_t> place(count());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<uint32_t>(i);
  return place;
}

}  // namespace kvikk
