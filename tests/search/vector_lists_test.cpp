// Lists: what a search of all of them finds, what one of some finds, changes, filters, the file.

#include "search/vector_lists.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "index_fixture.h"

namespace kvikk {
namespace {

constexpr size_t kDims = 40;
constexpr size_t kRows = 3000;
constexpr size_t kLists = 20;
constexpr SearchOptions kAll{.k = 10, .probes = kLists};

// Clusters, so that lists have something to find.
std::vector<float> make_clusters(size_t n, size_t d, unsigned seed) {
  const std::vector<float> centres = make_vectors(30, d, 77);
  std::vector<float> out = make_vectors(n, d, seed);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < d; ++j) {
      out[i * d + j] = 0.5f * out[i * d + j] + centres[i * 7 % 30 * d + j];
    }
  }
  return out;
}

std::unique_ptr<VectorIndex> with_lists(const IndexOptions& options,
                                        const std::vector<float>& sample, bool fit = false,
                                        const IndexRuntime& runtime = {1, ""}) {
  auto index = make_index(options, runtime);
  const Status made = index->make_lists(sample, kLists);
  EXPECT_TRUE(made.ok()) << made.message();
  if (fit) {
    EXPECT_TRUE(index->fit(sample).ok());
  }
  return index;
}

double recall(const Neighbors& found, const Neighbors& expected) {
  size_t hits = 0;
  size_t all = 0;
  for (size_t q = 0; q < found.size(); ++q) {
    const std::vector<int64_t> ids = ids_of(found[q]);
    for (const Neighbor& n : expected[q]) {
      hits += std::find(ids.begin(), ids.end(), n.id) != ids.end() ? 1 : 0;
    }
    all += expected[q].size();
  }
  return static_cast<double>(hits) / static_cast<double>(all);
}

TEST(VectorLists, ASearchOfAllFindsWhatAScanFinds) {
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const std::vector<float> queries = make_clusters(30, kDims, 2);
  for (const Metric metric : {Metric::kInnerProduct, Metric::kCosine, Metric::kL2}) {
    for (const bool fit : {false, true}) {
      for (const int bits : {2, 8}) {
        const IndexOptions options{kDims, bits, metric, KeptVectors::kNone, 0};
        auto index = with_lists(options, vectors, fit);
        auto flat = make_index(options);
        if (fit) {
          ASSERT_TRUE(flat->fit(vectors).ok());
        }
        for (VectorIndex* i : {index.get(), flat.get()}) {
          ASSERT_TRUE(i->add(vectors, make_ids(kRows)).ok());
        }
        EXPECT_EQ(index->info().lists, kLists);
        EXPECT_EQ(index->info().code_bytes, flat->info().code_bytes);
        const Neighbors found = find(*index, queries, kAll);
        double off = 0;
        Neighbors exact;
        for (size_t q = 0; q < 30; ++q) {
          const float* query = &queries[q * kDims];
          exact.emplace_back();
          for (const int64_t id : exact_neighbors(metric, query, vectors, kDims, 10)) {
            exact.back().push_back({id, 0});
          }
          for (const Neighbor& n : found[q]) {
            const float* x = &vectors[static_cast<size_t>(n.id) * kDims];
            const double score = exact_score(metric, query, x, kDims);
            off = std::max(off, std::abs(n.score - score));
          }
        }
        // A vector less its centroid is shorter: its code is nearer to it.
        EXPECT_GE(recall(found, exact), recall(find(*flat, queries), exact) - 0.02);
        if (bits == 8) {
          EXPECT_GT(recall(found, exact), 0.96);
          EXPECT_LT(off, metric == Metric::kCosine ? 0.01 : 1.0);
        }
      }
    }
  }
}

TEST(VectorLists, MoreProbesFindMoreAndTheirNumberCanBeChosen) {
  const std::vector<float> vectors = make_vectors(kRows, kDims, 1);
  const std::vector<float> queries = make_vectors(600, kDims, 2);
  for (const Metric metric : {Metric::kInnerProduct, Metric::kCosine, Metric::kL2}) {
    auto index = with_lists({kDims, 4, metric, KeptVectors::kNone, 0}, vectors);
    ASSERT_TRUE(index->add(vectors, make_ids(kRows)).ok());
    const Neighbors all = find(*index, queries, kAll);
    double before = 0;
    for (const size_t probes : {1, 4, 12, 20}) {
      const double now = recall(find(*index, queries, {.k = 10, .probes = probes}), all);
      EXPECT_GT(now, before);
      before = now;
    }
    EXPECT_EQ(before, 1);
    for (const double target : {0.7, 0.9, 0.97, 1.0}) {
      const auto probes = index->probes_for(queries, target);
      ASSERT_TRUE(probes.ok()) << probes.status().message();
      EXPECT_GT(recall(find(*index, queries, {.k = 10, .probes = *probes}), all), target - 0.02);
      if (*probes == 1) continue;
      EXPECT_LT(recall(find(*index, queries, {.k = 10, .probes = *probes - 1}), all),
                target + 0.02);
    }
    // Without a number the index takes its own.
    const size_t own = index->info().probes;
    EXPECT_LT(own, kLists);
    EXPECT_GT(recall(find(*index, queries), all), 0.9);
    expect_same(find(*index, queries), find(*index, queries, {.k = 10, .probes = own}));
  }
}

TEST(VectorLists, AnswersDoNotDependOnThreadsLevelBatchOrOrder) {
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const std::vector<float> queries = make_clusters(150, kDims, 2);
  for (const bool fit : {false, true}) {
    const IndexOptions options{kDims, 4, Metric::kL2, KeptVectors::kHalf, 0};
    const SearchOptions plain{.k = 12, .probes = 5};
    const SearchOptions staged{.k = 12, .staged = true, .probes = 5};
    const SearchOptions reranked{.k = 12, .rerank = 50, .probes = 5};
    std::vector<Neighbors> expected;
    for (const auto& [level, threads] : std::vector<std::pair<std::string, int>>{
             {"scalar", 1}, {"avx2", 1}, {"avx512", 1}, {"amx", 1}, {"", 3}}) {
      if (!VectorIndex::create(options, {threads, level}).ok()) continue;  // not on this machine
      auto index = with_lists(options, vectors, fit, {threads, level});
      if (threads == 1) {
        ASSERT_TRUE(index->add(vectors, make_ids(kRows)).ok());
      } else {  // backwards, in pieces of odd sizes
        for (size_t end = kRows; end > 0;) {
          const size_t begin = end > 77 ? end - 77 : 0;
          ASSERT_TRUE(index
                          ->add({&vectors[begin * kDims], (end - begin) * kDims},
                                make_ids(end - begin, static_cast<int64_t>(begin)))
                          .ok());
          end = begin;
        }
      }
      std::vector<Neighbors> now;
      for (const SearchOptions& how : {plain, staged, reranked}) {
        now.push_back(find(*index, queries, how));
        for (const size_t q : {0, 77, 149}) {
          expect_same(find(*index, {&queries[q * kDims], kDims}, how), {now.back()[q]});
        }
      }
      if (expected.empty()) expected = now;
      for (size_t i = 0; i < now.size(); ++i) expect_same(now[i], expected[i]);
    }
  }
}

TEST(VectorLists, AStagedSearchScoresWholeCodes) {
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const std::vector<float> queries = make_clusters(20, kDims, 2);
  auto index = with_lists({kDims, 4, Metric::kL2, KeptVectors::kNone, 0}, vectors);
  ASSERT_TRUE(index->add(vectors, make_ids(kRows)).ok());
  const SearchOptions staged{.k = 10, .staged = true, .candidates = kRows, .probes = kLists};
  expect_same(find(*index, queries, staged), find(*index, queries, kAll));
}

TEST(VectorLists, ChangesFiltersAndRanges) {
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const std::vector<float> other = make_clusters(kRows, kDims, 5);
  const std::vector<float> queries = make_clusters(10, kDims, 2);
  auto index = with_lists({kDims, 8, Metric::kL2, KeptVectors::kHalf, 1}, vectors);
  ASSERT_TRUE(index->add(vectors, make_ids(kRows), make_ids(kRows)).ok());
  // Every second one moves, to another list as a rule; every third goes.
  std::vector<float> now = vectors;
  std::vector<float> moved;
  std::vector<int64_t> moved_ids, gone;
  for (size_t i = 0; i < kRows; i += 2) {
    moved_ids.push_back(static_cast<int64_t>(i));
    moved.insert(moved.end(), &other[i * kDims], &other[i * kDims] + kDims);
    std::copy_n(&other[i * kDims], kDims, &now[i * kDims]);
  }
  for (size_t i = 0; i < kRows; i += 3) gone.push_back(static_cast<int64_t>(i));
  ASSERT_TRUE(index->add(moved, moved_ids, moved_ids).ok());
  const auto removed = index->remove(gone);
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, gone.size());
  EXPECT_EQ(index->info().vectors, kRows - gone.size());
  const auto check = [&] {
    for (size_t q = 0; q < 10; ++q) {
      const float* query = &queries[q * kDims];
      std::vector<int64_t> expected;
      for (const int64_t id : exact_neighbors(Metric::kL2, query, now, kDims, kRows)) {
        if (id % 3 != 0 && expected.size() < 10) expected.push_back(id);
      }
      const SearchOptions exact{.k = 10, .rerank = 100, .probes = kLists};
      std::vector<int64_t> found = ids_of(find(*index, {query, kDims}, exact)[0]);
      std::sort(found.begin(), found.end());  // half floats may swap two of the ten
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(found, expected) << q;
    }
    EXPECT_EQ(find(*index, queries, {.k = kRows})[3].size(), kRows - gone.size());
  };
  check();
  ASSERT_TRUE(index->compact().ok());
  EXPECT_EQ(index->info().removed, 0u);
  check();
  ASSERT_TRUE(index->refit().ok());
  EXPECT_TRUE(index->info().fitted);
  EXPECT_EQ(index->info().lists, kLists);
  check();
  // A filter that leaves few: all k are found however few lists are asked for.
  IndexFilter filter;
  filter.ranges = {{0, 1, 60}};
  const SearchOptions few{.k = 40, .filter = &filter, .probes = 1};
  for (const std::vector<Neighbor>& found : find(*index, queries, few)) {
    EXPECT_EQ(found.size(), 40u);
  }
  filter.ranges = {{0, -9, 0}};
  EXPECT_TRUE(find(*index, queries, few)[0].empty());
  // A range: what a search for all has on this side of the score.
  const Neighbors all = find(*index, queries, {.k = kRows});
  const float limit = all[0][100].score;
  const auto range = index->range_search(queries, limit);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ((*range)[0].size(), 101u);
  for (size_t q = 0; q < 10; ++q) {
    Neighbors inside(1);
    for (const Neighbor& n : all[q]) {
      if (n.score <= limit) inside[0].push_back(n);
    }
    expect_same({(*range)[q]}, inside);
  }
}

TEST(VectorLists, OfAnIndexThatIsFilledAlready) {
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const std::vector<float> queries = make_clusters(10, kDims, 2);
  for (const KeptVectors kept : {KeptVectors::kHalf, KeptVectors::kInt8}) {
    auto index = make_index({kDims, 4, Metric::kCosine, kept, 0});
    ASSERT_TRUE(index->add(vectors, make_ids(kRows)).ok());
    ASSERT_TRUE(index->remove(make_ids(5)).ok());
    ASSERT_TRUE(index->refit().ok());
    const SearchOptions exact{.k = 10, .rerank = 100, .probes = kLists};
    const Neighbors before = find(*index, queries, exact);
    ASSERT_TRUE(index->make_lists(vectors, kLists).ok());
    EXPECT_TRUE(index->info().fitted);
    EXPECT_EQ(index->info().vectors, kRows - 5);
    expect_same(find(*index, queries, exact), before);
  }
}

TEST(VectorLists, WhatIsSavedComesBackAndGoesOn) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const std::vector<float> queries = make_clusters(10, kDims, 2);
  for (const bool fit : {false, true}) {
    auto index = with_lists({kDims, 4, Metric::kCosine, KeptVectors::kInt8, 0}, vectors, fit);
    ASSERT_TRUE(index->save(path).ok());  // empty
    ASSERT_TRUE(VectorIndex::open(path).ok());
    ASSERT_TRUE(index->add({vectors.data(), 2000 * kDims}, make_ids(2000)).ok());
    ASSERT_TRUE(index->save(path).ok());
    auto back = VectorIndex::open(path, {1, ""});
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ((*back)->info().probes, index->info().probes);
    for (VectorIndex* i : {index.get(), back->get()}) {
      ASSERT_TRUE(i->add({&vectors[1500 * kDims], 1500 * kDims}, make_ids(1500, 1500)).ok());
      ASSERT_TRUE(i->remove(make_ids(30, 700)).ok());
    }
    for (const SearchOptions& how :
         {SearchOptions{.k = 9}, SearchOptions{.k = kRows}, SearchOptions{.k = 9, .rerank = 20}}) {
      expect_same(find(**back, queries, how), find(*index, queries, how));
    }
    ASSERT_TRUE((*back)->save(path).ok());  // appended
    const auto again = VectorIndex::open(path, {1, ""});
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE((*again)->verify().ok());
    expect_same(find(**again, queries, {.k = kRows}), find(*index, queries, {.k = kRows}));
  }
}

TEST(VectorLists, DamageIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  const std::vector<float> vectors = make_clusters(500, kDims, 1);
  auto index = with_lists({kDims, 2, Metric::kL2, KeptVectors::kNone, 0}, vectors);
  ASSERT_TRUE(index->add(vectors, make_ids(500)).ok());
  ASSERT_TRUE(index->save(path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  const std::vector<float> queries = make_clusters(3, kDims, 2);
  const Neighbors expected = find(*index, queries, {.k = 500});
  const std::string bad = folder.path("bad.kvx");
  std::mt19937 random(3);
  size_t refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = good;
    const size_t at = 8192 + random() % (bytes.size() - 8192);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    std::ofstream(bad, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
    const auto opened = VectorIndex::open(bad, {1, ""});
    const auto found = opened.ok() ? (*opened)->search(queries, {.k = 500}) : opened.status();
    if (found.ok()) {
      expect_same(*found, expected);  // a byte between parts
      continue;
    }
    EXPECT_EQ(found.status().code(), StatusCode::kDamaged);
    EXPECT_NE(found.status().message().find("bad.kvx"), std::string::npos);
    ++refused;
  }
  EXPECT_GT(refused, 300u);
}

TEST(VectorLists, WrongUseIsRefused) {
  const std::vector<float> vectors = make_clusters(kRows, kDims, 1);
  const auto error = [&](const Status& status) {
    return status.ok() ? std::string("done") : status.message();
  };
  const IndexOptions options{kDims, 4, Metric::kCosine, KeptVectors::kNone, 0};
  auto index = make_index(options);
  EXPECT_NE(error(index->make_lists(vectors, 0)).find("not 0"), std::string::npos);
  EXPECT_NE(error(index->make_lists(vectors, 65537)).find("not 65537"), std::string::npos);
  EXPECT_NE(error(index->make_lists(vectors, 751)).find("at least 3004"), std::string::npos);
  EXPECT_NE(error(index->make_lists({vectors.data(), 41}, 1)).find("multiple"), std::string::npos);
  std::vector<float> nan = vectors;
  nan[7 * kDims] = NAN;
  EXPECT_NE(error(index->make_lists(nan, 4)).find("vector 7 "), std::string::npos);
  EXPECT_NE(error(index->probes_for(vectors, 0.9).status()).find("no lists"), std::string::npos);
  // Vectors that are all the same are no reason to fail: the lists are, too.
  ASSERT_TRUE(index->make_lists(std::vector<float>(400 * kDims, 1.0f), 9).ok());
  ASSERT_TRUE(index->make_lists(vectors, 750).ok());
  for (const double wrong : {0.0, -1.0, 1.5, static_cast<double>(NAN)}) {
    EXPECT_FALSE(index->probes_for(vectors, wrong).ok());
  }
  EXPECT_EQ(*index->probes_for(vectors, 1.0), 1u);  // nothing is in it
  ASSERT_TRUE(index->add(vectors, make_ids(kRows)).ok());
  EXPECT_EQ(index->make_lists(vectors, 4).code(), StatusCode::kUnsupported);
  auto fitted = make_index(options);
  ASSERT_TRUE(fitted->fit(vectors).ok());
  EXPECT_NE(error(fitted->make_lists(vectors, 4)).find("before"), std::string::npos);
}

}  // namespace
}  // namespace kvikk
