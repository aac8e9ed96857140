#pragma once
// Random vectors with some structure, exact neighbours by brute force, and a folder for files.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kvikk/search.h"

namespace kvikk {

// n vectors whose coordinates have falling variance and a mean: [n, d].
inline std::vector<float> make_vectors(size_t n, size_t d, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < d; ++j) {
      out.push_back(normal(random) * 3 / (1 + 0.1f * static_cast<float>(j)) + (j == 1 ? 1 : 0));
    }
  }
  return out;
}

inline std::vector<int64_t> make_ids(size_t n, int64_t first = 0) {
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

inline double exact_score(Metric metric, const float* q, const float* x, size_t d) {
  double dot = 0;
  double qq = 0;
  double xx = 0;
  for (size_t i = 0; i < d; ++i) {
    dot += static_cast<double>(q[i]) * x[i];
    qq += static_cast<double>(q[i]) * q[i];
    xx += static_cast<double>(x[i]) * x[i];
  }
  if (metric == Metric::kCosine) return dot / std::sqrt(qq * xx);
  return metric == Metric::kL2 ? qq + xx - 2 * dot : dot;
}

// Row numbers, best first.
inline std::vector<int64_t> exact_neighbors(Metric metric, const float* q,
                                            const std::vector<float>& vectors, size_t d, size_t k) {
  std::vector<std::pair<double, int64_t>> all;
  for (size_t i = 0; i < vectors.size() / d; ++i) {
    const double score = exact_score(metric, q, &vectors[i * d], d);
    all.emplace_back(metric == Metric::kL2 ? score : -score, static_cast<int64_t>(i));
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> out;
  for (size_t i = 0; i < std::min(k, all.size()); ++i) out.push_back(all[i].second);
  return out;
}

inline std::unique_ptr<VectorIndex> make_index(const IndexOptions& options,
                                               const IndexRuntime& runtime = {}) {
  auto made = VectorIndex::create(options, runtime);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

inline Neighbors find(const VectorIndex& index, std::span<const float> queries,
                      const SearchOptions& options = {}) {
  auto found = index.search(queries, options);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : Neighbors();
}

inline std::vector<int64_t> ids_of(const std::vector<Neighbor>& neighbors) {
  std::vector<int64_t> ids;
  for (const Neighbor& n : neighbors) ids.push_back(n.id);
  return ids;
}

inline void expect_same(const Neighbors& a, const Neighbors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t q = 0; q < a.size(); ++q) {
    ASSERT_EQ(a[q].size(), b[q].size()) << q;
    for (size_t i = 0; i < a[q].size(); ++i) {
      ASSERT_EQ(a[q][i].id, b[q][i].id) << q << " " << i;
      ASSERT_EQ(a[q][i].score, b[q][i].score) << q << " " << i;
    }
  }
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kvikk-search-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace kvikk
