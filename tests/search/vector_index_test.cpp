// The index: what it finds, for every metric and width, alone and in batches, on every level of
// instructions; changes, filters, ranges, and what is refused.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "index_fixture.h"
#include "kernels/float16.h"
#include "search/chunk.h"

namespace kvikk {
namespace {

constexpr size_t kDims = 48;
constexpr Metric kMetrics[] = {Metric::kInnerProduct, Metric::kCosine, Metric::kL2};

double recall(const Neighbors& found, Metric metric, const std::vector<float>& queries,
              const std::vector<float>& vectors, size_t d, size_t k) {
  double hits = 0;
  for (size_t q = 0; q < found.size(); ++q) {
    const auto exact = exact_neighbors(metric, &queries[q * d], vectors, d, k);
    for (const Neighbor& n : found[q]) {
      hits += std::find(exact.begin(), exact.end(), n.id) != exact.end() ? 1 : 0;
    }
  }
  return hits / static_cast<double>(found.size() * k);
}

TEST(VectorIndex, FindsTheNearestForEveryMetric) {
  const std::vector<float> vectors = make_vectors(3000, kDims, 1);
  const std::vector<float> queries = make_vectors(40, kDims, 2);
  for (const Metric metric : kMetrics) {
    for (const bool fit : {false, true}) {
      IndexOptions options{kDims, 8, metric, KeptVectors::kNone, 0};
      auto index = make_index(options);
      if (fit) {
        ASSERT_TRUE(index->fit(vectors).ok());
      }
      ASSERT_TRUE(index->add(vectors, make_ids(3000)).ok());
      const Neighbors found = find(*index, queries);
      EXPECT_GT(recall(found, metric, queries, vectors, kDims, 10), 0.95);
      for (size_t q = 0; q < found.size(); ++q) {
        for (const Neighbor& n : found[q]) {
          const double exact = exact_score(metric, &queries[q * kDims],
                                           &vectors[static_cast<size_t>(n.id) * kDims], kDims);
          EXPECT_NEAR(n.score, exact,
                      0.02 * (metric == Metric::kCosine ? 1 : std::max(30.0, exact)));
        }
      }
    }
  }
}

TEST(VectorIndex, MoreBitsFindMore) {
  const std::vector<float> vectors = make_vectors(2000, 128, 1);
  const std::vector<float> queries = make_vectors(40, 128, 2);
  double before = 0.2;
  for (const int bits : {1, 2, 3, 4, 8}) {
    auto index = make_index({128, bits, Metric::kInnerProduct, KeptVectors::kNone, 0});
    ASSERT_TRUE(index->add(vectors, make_ids(2000)).ok());
    const double now =
        recall(find(*index, queries), Metric::kInnerProduct, queries, vectors, 128, 10);
    EXPECT_GT(now, before) << bits;
    before = now;
  }
}

TEST(VectorIndex, AnswersDoNotDependOnThreadsLevelBatchOrOrder) {
  const std::vector<float> vectors = make_vectors(5000, 100, 1);
  const std::vector<float> queries = make_vectors(70, 100, 2);
  for (const bool fit : {false, true}) {
    for (const int bits : {2, 3, 4}) {
      const IndexOptions options{100, bits, Metric::kL2, KeptVectors::kHalf, 0};
      Neighbors expected, staged, reranked;
      for (const auto& [level, threads] : std::vector<std::pair<std::string, int>>{
               {"scalar", 1}, {"avx2", 1}, {"avx512", 1}, {"amx", 1}, {"", 3}}) {
        auto made = VectorIndex::create(options, {threads, level});
        if (!made.ok()) continue;  // this machine lacks the level
        VectorIndex& index = **made;
        if (fit) {
          ASSERT_TRUE(index.fit(vectors).ok());
        }
        if (threads == 1) {
          ASSERT_TRUE(index.add(vectors, make_ids(5000)).ok());
        } else {  // backwards, in pieces of odd sizes
          for (size_t end = 5000; end > 0;) {
            const size_t begin = end > 777 ? end - 777 : 0;
            ASSERT_TRUE(index
                            .add({&vectors[begin * 100], (end - begin) * 100},
                                 make_ids(end - begin, static_cast<int64_t>(begin)))
                            .ok());
            end = begin;
          }
        }
        const Neighbors now = find(index, queries, {.k = 20});
        if (expected.empty()) {
          expected = now;
          staged = find(index, queries, {.k = 20, .staged = true});
          reranked = find(index, queries, {.k = 20, .rerank = 60});
        }
        expect_same(now, expected);
        expect_same(find(index, queries, {.k = 20, .staged = true}), staged);
        expect_same(find(index, queries, {.k = 20, .rerank = 60}), reranked);
        for (const size_t q : {0, 33, 69}) {
          const Neighbors alone = find(index, {&queries[q * 100], 100}, {.k = 20});
          expect_same({alone[0]}, {expected[q]});
        }
      }
    }
  }
}

TEST(VectorIndex, AStagedSearchFindsNearlyTheSame) {
  const std::vector<float> vectors = make_vectors(4000, 128, 1);
  const std::vector<float> queries = make_vectors(50, 128, 2);
  auto index = make_index({128, 4, Metric::kInnerProduct, KeptVectors::kNone, 0});
  ASSERT_TRUE(index->add(vectors, make_ids(4000)).ok());
  const auto recall_of = [&](const SearchOptions& options) {
    return recall(find(*index, queries, options), Metric::kInnerProduct, queries, vectors, 128, 10);
  };
  EXPECT_NEAR(recall_of({.staged = true}), recall_of({}), 0.01);
  const Neighbors all = find(*index, queries, {.staged = true, .candidates = 4000});
  expect_same(all, find(*index, queries));  // scores of the second stage are those of a whole scan
}

TEST(KeptVectors, EveryFiniteHalfComesBack) {
  std::vector<float> all;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half >> 10 & 0x1f) != 0x1f) all.push_back(half_to_float(static_cast<uint16_t>(half)));
  }
  ChunkShape shape;
  shape.dimensions = all.size();
  shape.kept = KeptVectors::kHalf;
  std::vector<uint8_t> bytes(shape.kept_bytes());
  put_kept(KeptVectors::kHalf, all.data(), all.size(), bytes.data());
  std::vector<float> back(all.size());
  ASSERT_TRUE(get_kept(KeptVectors::kHalf, bytes.data(), all.size(), back.data()).ok());
  EXPECT_EQ(std::memcmp(back.data(), all.data(), all.size() * sizeof(float)), 0);
}

TEST(VectorIndex, RankingAgainIsExact) {
  const std::vector<float> vectors = make_vectors(2000, kDims, 1);
  const std::vector<float> queries = make_vectors(30, kDims, 2);
  for (const Metric metric : kMetrics) {
    for (const KeptVectors kept : {KeptVectors::kInt8, KeptVectors::kHalf}) {
      auto index = make_index({kDims, 2, metric, kept, 0});
      ASSERT_TRUE(index->add(vectors, make_ids(2000)).ok());
      const Neighbors found = find(*index, queries, {.k = 10, .rerank = 300});
      EXPECT_GT(recall(found, metric, queries, vectors, kDims, 10),
                kept == KeptVectors::kHalf ? 0.99 : 0.93);
      const double exact = exact_score(
          metric, queries.data(), &vectors[static_cast<size_t>(found[0][0].id) * kDims], kDims);
      EXPECT_NEAR(found[0][0].score, exact, std::abs(exact) * 0.03);
    }
  }
  auto none = make_index({kDims, 2, Metric::kL2, KeptVectors::kNone, 0});
  EXPECT_NE(none->search(queries, {.rerank = 5}).status().message().find("keeps no vectors"),
            std::string::npos);
}

TEST(VectorIndex, ReplacesRemovesAndCompacts) {
  const std::vector<float> vectors = make_vectors(500, kDims, 1);
  const std::vector<float> others = make_vectors(500, kDims, 2);
  auto index = make_index({kDims, 4, Metric::kInnerProduct, KeptVectors::kHalf, 0});
  auto fresh = make_index({kDims, 4, Metric::kInnerProduct, KeptVectors::kHalf, 0});
  for (size_t i = 0; i < 500; i += 7) {  // in small pieces: tails
    const size_t n = std::min<size_t>(7, 500 - i);
    ASSERT_TRUE(
        index->add({&vectors[i * kDims], n * kDims}, make_ids(n, static_cast<int64_t>(i))).ok());
  }
  // Ids 100 to 199 get other vectors, 300 to 399 go; 7777 was never there.
  ASSERT_TRUE(index->add({&others[100 * kDims], 100 * kDims}, make_ids(100, 100)).ok());
  std::vector<int64_t> gone = make_ids(100, 300);
  gone.push_back(7777);
  gone.push_back(300);
  const auto removed = index->remove(gone);
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, 100u);
  EXPECT_EQ(index->info().vectors, 400u);
  EXPECT_EQ(index->info().removed, 200u);
  ASSERT_TRUE(fresh->add({vectors.data(), 100 * kDims}, make_ids(100)).ok());
  ASSERT_TRUE(fresh->add({&others[100 * kDims], 100 * kDims}, make_ids(100, 100)).ok());
  ASSERT_TRUE(fresh->add({&vectors[200 * kDims], 100 * kDims}, make_ids(100, 200)).ok());
  ASSERT_TRUE(fresh->add({&vectors[400 * kDims], 100 * kDims}, make_ids(100, 400)).ok());
  const std::vector<float> queries = make_vectors(20, kDims, 3);
  const Neighbors expected = find(*fresh, queries, {.k = 1000});
  EXPECT_EQ(expected[0].size(), 400u);
  expect_same(find(*index, queries, {.k = 1000}), expected);
  ASSERT_TRUE(index->compact().ok());
  EXPECT_EQ(index->info().removed, 0u);
  expect_same(find(*index, queries, {.k = 1000}), expected);
  ASSERT_TRUE(index->remove(make_ids(1, 5)).ok());
  ASSERT_TRUE(index->add({&vectors[5 * kDims], kDims}, make_ids(1, 5)).ok());
  expect_same(find(*index, queries, {.k = 1000}), expected);
  // The same id twice in one call: the last one counts.
  std::vector<float> two(vectors.begin(), vectors.begin() + 2 * kDims);
  const std::vector<int64_t> same = {42, 42};
  ASSERT_TRUE(index->add(two, same).ok());
  EXPECT_EQ(index->info().vectors, 400u);
}

TEST(VectorIndex, RefitsToWhatItKeeps) {
  const std::vector<float> vectors = make_vectors(3000, 128, 1);
  const std::vector<float> queries = make_vectors(40, 128, 2);
  auto index = make_index({128, 2, Metric::kInnerProduct, KeptVectors::kHalf, 1});
  ASSERT_TRUE(index->add(vectors, make_ids(3000), make_ids(3000)).ok());
  const double before =
      recall(find(*index, queries), Metric::kInnerProduct, queries, vectors, 128, 10);
  EXPECT_FALSE(index->info().fitted);
  ASSERT_TRUE(index->refit().ok());
  EXPECT_TRUE(index->info().fitted);
  EXPECT_GT(recall(find(*index, queries), Metric::kInnerProduct, queries, vectors, 128, 10),
            before + 0.05);
  EXPECT_FALSE(index->fit(vectors).ok());  // it is not empty
  auto none = make_index({128, 2, Metric::kInnerProduct, KeptVectors::kNone, 0});
  EXPECT_EQ(none->refit().code(), StatusCode::kUnsupported);
}

TEST(VectorIndex, FiltersGiveExactlyKThatPass) {
  const size_t n = 6000;
  const std::vector<float> vectors = make_vectors(n, kDims, 1);
  const std::vector<float> queries = make_vectors(10, kDims, 2);
  std::vector<int64_t> attributes;
  for (size_t i = 0; i < n; ++i) {
    attributes.push_back(static_cast<int64_t>(i % 100));
    attributes.push_back(-static_cast<int64_t>(i));
  }
  auto index = make_index({kDims, 4, Metric::kInnerProduct, KeptVectors::kNone, 2});
  ASSERT_TRUE(index->add(vectors, make_ids(n), attributes).ok());
  const Neighbors all = find(*index, queries, {.k = n});
  const auto expect_filtered = [&](const IndexFilter& filter, auto passes, size_t k) {
    const Neighbors found = find(*index, queries, {.k = k, .filter = &filter});
    const Neighbors staged =
        find(*index, queries, {.k = k, .staged = true, .candidates = n, .filter = &filter});
    for (size_t q = 0; q < found.size(); ++q) {
      std::vector<Neighbor> expected;
      for (const Neighbor& neighbor : all[q]) {
        if (expected.size() < k && passes(neighbor.id)) expected.push_back(neighbor);
      }
      expect_same({found[q]}, {expected});
      expect_same({staged[q]}, {expected});
    }
  };
  IndexFilter filter;
  filter.ranges = {{0, 10, 12}};
  expect_filtered(
      filter, [](int64_t id) { return id % 100 >= 10 && id % 100 <= 12; }, 50);
  filter.ranges.push_back({1, -3000, -2000});
  expect_filtered(
      filter,
      [](int64_t id) { return id % 100 >= 10 && id % 100 <= 12 && id >= 2000 && id <= 3000; }, 500);
  filter = {};
  filter.ids = std::vector<int64_t>{5, 5999, 17, 123456};
  expect_filtered(
      filter, [](int64_t id) { return id == 5 || id == 5999 || id == 17; }, 10);
  filter.ids = std::vector<int64_t>{};
  expect_filtered(
      filter, [](int64_t) { return false; }, 10);
  filter = {};
  filter.bitmap = std::vector<uint64_t>(10, 0x8000000000000001u);  // ids below 640
  expect_filtered(
      filter, [](int64_t id) { return id < 640 && (id % 64 == 0 || id % 64 == 63); }, 100);
  filter.ranges = {{2, 0, 0}};
  EXPECT_NE(index->search(queries, {.filter = &filter}).status().message().find("attribute 2"),
            std::string::npos);
}

TEST(VectorIndex, RangesHoldAllThatAreGoodEnough) {
  const std::vector<float> vectors = make_vectors(3000, kDims, 1);
  const std::vector<float> query = make_vectors(1, kDims, 2);
  for (const Metric metric : kMetrics) {
    auto index = make_index({kDims, 4, metric, KeptVectors::kNone, 0});
    ASSERT_TRUE(index->add(vectors, make_ids(3000)).ok());
    const Neighbors all = find(*index, query, {.k = 3000});
    const float limit = all[0][200].score;
    const auto found = index->range_search(query, limit);
    ASSERT_TRUE(found.ok());
    std::vector<Neighbor> expected(all[0].begin(), all[0].begin() + 201);
    for (size_t i = 201; i < 3000 && all[0][i].score == limit; ++i) expected.push_back(all[0][i]);
    expect_same(*found, {expected});
    EXPECT_FALSE(index->range_search(query, NAN).ok());
  }
}

TEST(VectorIndex, EmptySmallAndLarge) {
  auto index = make_index({kDims, 4, Metric::kCosine, KeptVectors::kNone, 0});
  const std::vector<float> queries = make_vectors(3, kDims, 2);
  const Neighbors nothing = find(*index, queries);
  ASSERT_EQ(nothing.size(), 3u);
  EXPECT_TRUE(nothing[0].empty());
  EXPECT_TRUE(find(*index, {}).empty());
  ASSERT_TRUE(index->add({}, {}).ok());
  ASSERT_TRUE(index->add(make_vectors(5, kDims, 1), make_ids(5)).ok());
  EXPECT_EQ(find(*index, queries, {.k = 100})[2].size(), 5u);
  EXPECT_FALSE(index->search(queries, {.k = 0}).ok());
  EXPECT_FALSE(index->search(queries, {.k = kNeighborsMax + 1}).ok());
  EXPECT_EQ(find(*index, queries, {.k = kNeighborsMax})[2].size(), 5u);
}

TEST(VectorIndex, RefusesWrongVectors) {
  auto index = make_index({4, 4, Metric::kInnerProduct, KeptVectors::kHalf, 0});
  const auto message = [&](std::vector<float> vectors, size_t ids) {
    return index->add(vectors, make_ids(ids)).message();
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_NE(message({1, 2, 3, 4, 5, NAN, 7, 8}, 2).find("vector 1 has a NaN"), std::string::npos);
  EXPECT_NE(message({1, 2, 3, kInf}, 1).find("vector 0 has a NaN or an infinity"),
            std::string::npos);
  EXPECT_NE(message({1e20f, 2, 3, 4}, 1).find("too long"), std::string::npos);
  EXPECT_NE(message({1e5f, 2, 3, 4}, 1).find("65504"), std::string::npos);
  EXPECT_NE(message({1, 2, 3}, 1).find("need 4 numbers, there are 3"), std::string::npos);
  EXPECT_NE(
      index->add(std::vector<float>(4), make_ids(1), make_ids(1)).message().find("attributes"),
      std::string::npos);
  EXPECT_EQ(index->info().vectors, 0u);
  EXPECT_NE(index->search(std::vector<float>{1, NAN, 3, 4}).status().message().find("query 0"),
            std::string::npos);
  EXPECT_NE(index->search(std::vector<float>{1, 2, 3}).status().message().find("4 dimensions"),
            std::string::npos);
  EXPECT_FALSE(VectorIndex::create({0, 4, Metric::kL2, KeptVectors::kNone, 0}).ok());
  EXPECT_FALSE(VectorIndex::create({4097, 4, Metric::kL2, KeptVectors::kNone, 0}).ok());
  EXPECT_FALSE(VectorIndex::create({8, 5, Metric::kL2, KeptVectors::kNone, 0}).ok());
  EXPECT_FALSE(VectorIndex::create({8, 4, Metric::kL2, KeptVectors::kNone, 5}).ok());
  EXPECT_FALSE(VectorIndex::create({8, 4, Metric::kL2, KeptVectors::kNone, 0}, {1, "mmx"}).ok());
}

TEST(VectorIndex, ZerosAndExtremesHaveScoresThatMakeSense) {
  for (const Metric metric : kMetrics) {
    auto index = make_index({8, 4, metric, KeptVectors::kNone, 0});
    std::vector<float> vectors(4 * 8, 0.0f);
    for (size_t i = 0; i < 8; ++i) {
      vectors[8 + i] = 1e-20f;
      vectors[16 + i] = 1e8f;
      vectors[24 + i] = i == 3 ? 1.0f : 0.0f;
    }
    ASSERT_TRUE(index->add(vectors, make_ids(4)).ok());
    const std::vector<float> query = {0, 0, 0, 1, 0, 0, 0, 0};
    const Neighbors found = find(*index, query);
    ASSERT_EQ(found[0].size(), 4u);
    for (const Neighbor& n : found[0]) {
      EXPECT_TRUE(std::isfinite(n.score));
      const double exact =
          exact_score(metric, query.data(), &vectors[static_cast<size_t>(n.id) * 8], 8);
      if (n.id == 0 && metric == Metric::kCosine) {
        EXPECT_EQ(n.score, 0);
      } else {
        EXPECT_NEAR(n.score, exact, std::max(0.15, std::abs(exact) * 0.2)) << n.id;
      }
    }
    const Neighbors zero = find(*index, std::vector<float>(8, 0.0f));
    EXPECT_EQ(zero[0].size(), 4u);
    EXPECT_EQ(zero[0][0].id, 0);  // all alike, or at distance 0
  }
}

// A writer adds groups of 16 ids that share one vector each time, and removes them whole. A
// reader that asks for the nearest of a group's vector must find all of the group or none.
void expect_whole_changes(size_t lists) {
  const size_t d = 32;
  auto index = make_index({d, 8, Metric::kL2, KeptVectors::kNone, 0}, {1, ""});
  constexpr size_t kGroups = 60;
  constexpr size_t kSame = 16;
  const std::vector<float> vectors = make_vectors(kGroups, d, 1);
  if (lists > 0) {
    ASSERT_TRUE(index->make_lists(vectors, lists).ok());
  }
  std::atomic<bool> done{false};
  std::atomic<size_t> wrong{0};
  std::atomic<size_t> searches{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      for (size_t i = static_cast<size_t>(t); !done.load(); ++i) {
        const size_t group = i % kGroups;
        const SearchOptions options{.k = 2 * kSame, .probes = lists};
        const auto found = index->search({&vectors[group * d], d}, options);
        size_t same = 0;
        std::set<int64_t> ids;
        if (!found.ok()) ++wrong;
        for (const Neighbor& n : (*found)[0]) {
          same += static_cast<size_t>(n.id) / kSame == group ? 1 : 0;
          ids.insert(n.id);
        }
        if (same != 0 && same != kSame) ++wrong;
        if (ids.size() != (*found)[0].size()) ++wrong;  // an id twice
        ++searches;
      }
    });
  }
  for (int round = 0; round < 3 || searches.load() < 200; ++round) {
    for (size_t g = 0; g < kGroups; ++g) {
      std::vector<float> same;
      for (size_t i = 0; i < kSame; ++i) {
        same.insert(same.end(), &vectors[g * d], &vectors[g * d] + d);
      }
      const auto ids = make_ids(kSame, static_cast<int64_t>(g * kSame));
      ASSERT_TRUE(index->add(same, ids).ok());
      if (g % 3 == 0) {
        ASSERT_TRUE(index->add(same, ids).ok());  // replaced by the same
      }
      if (g % 2 == 0) {
        ASSERT_EQ(*index->remove(ids), kSame);
      }
    }
    if (round % 2 == 1) {
      ASSERT_TRUE(index->compact().ok());
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(VectorIndex, SearchesSeeWholeChanges) { expect_whole_changes(0); }
TEST(VectorIndex, SearchesSeeWholeChangesInLists) { expect_whole_changes(4); }

}  // namespace
}  // namespace kvikk
