// The file of an index: what is saved comes back, saves are small, a crash at any moment leaves a
// whole index, and damage is refused.

#include "search/index_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "index_fixture.h"

namespace kvikk {
namespace {

constexpr size_t kDims = 40;

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

std::unique_ptr<VectorIndex> open(const std::string& path) {
  auto opened = VectorIndex::open(path, {1, ""});
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? std::move(*opened) : nullptr;
}

std::unique_ptr<VectorIndex> filled(const IndexOptions& options, size_t n, bool fit = false) {
  const std::vector<float> vectors = make_vectors(n, options.dimensions, 1);
  auto index = make_index(options, {1, ""});
  if (fit) {
    EXPECT_TRUE(index->fit(vectors).ok());
  }
  EXPECT_TRUE(index->add(vectors, make_ids(n), make_ids(n * options.attributes)).ok());
  return index;
}

TEST(IndexFile, WhatIsSavedComesBack) {
  TemporaryFolder folder;
  const std::vector<float> queries = make_vectors(10, kDims, 2);
  for (const Metric metric : {Metric::kInnerProduct, Metric::kCosine, Metric::kL2}) {
    for (const bool fit : {false, true}) {
      const IndexOptions options{kDims, 3, metric, KeptVectors::kInt8, 2};
      auto index = filled(options, 5001, fit);
      ASSERT_TRUE(index->remove(make_ids(50, 100)).ok());
      const std::string path = folder.path("a.kvx");
      ASSERT_TRUE(index->save(path).ok());
      auto back = open(path);
      ASSERT_NE(back, nullptr);
      EXPECT_EQ(back->info().vectors, 4951u);
      EXPECT_EQ(back->info().fitted, fit);
      EXPECT_EQ(back->info().options.metric, metric);
      IndexFilter filter;
      filter.ranges = {{1, 1001, 5000}};
      for (const SearchOptions& how :
           {SearchOptions{.k = 50}, SearchOptions{.k = 10, .rerank = 99},
            SearchOptions{.k = 10, .staged = true}, SearchOptions{.k = 9, .filter = &filter}}) {
        expect_same(find(*back, queries, how), find(*index, queries, how));
      }
      EXPECT_TRUE(back->verify().ok());
      // And goes on from there.
      const std::vector<float> more = make_vectors(30, kDims, 9);
      const auto attributes = make_ids(60);
      for (VectorIndex* i : {index.get(), back.get()}) {
        ASSERT_TRUE(i->add(more, make_ids(30, 4990), attributes).ok());
        ASSERT_TRUE(i->remove(make_ids(10, 0)).ok());
      }
      expect_same(find(*back, queries, {.k = 6000}), find(*index, queries, {.k = 6000}));
    }
  }
}

TEST(IndexFile, AnEmptyIndexIsAFileToo) {
  TemporaryFolder folder;
  auto index = make_index({kDims, 2, Metric::kL2, KeptVectors::kNone, 0});
  ASSERT_TRUE(index->save(folder.path("empty")).ok());
  auto back = open(folder.path("empty"));
  EXPECT_EQ(back->info().vectors, 0u);
  EXPECT_TRUE(find(*back, make_vectors(1, kDims, 1))[0].empty());
  EXPECT_EQ(index->save(folder.path("no/folder")).code(), StatusCode::kIo);
  EXPECT_EQ(VectorIndex::open(folder.path("none")).status().code(), StatusCode::kNotFound);
}

TEST(IndexFile, ASaveWritesWhatChanged) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  auto index = filled({kDims, 4, Metric::kInnerProduct, KeptVectors::kHalf, 0}, 20000);
  ASSERT_TRUE(index->save(path).ok());
  const std::string first = read_bytes(path);
  auto again = open(path);
  ASSERT_TRUE(again->add(make_vectors(10, kDims, 3), make_ids(10, 90000)).ok());
  ASSERT_TRUE(again->remove(make_ids(5, 7)).ok());
  ASSERT_TRUE(again->save(path).ok());
  const std::string second = read_bytes(path);
  // Appended: what was there is still there, behind the superblocks.
  EXPECT_EQ(second.substr(8192, first.size() - 8192), first.substr(8192));
  EXPECT_LT(second.size() - first.size(), first.size() / 4);
  ASSERT_TRUE(again->save(path).ok());  // nothing changed: a manifest
  EXPECT_LT(read_bytes(path).size() - second.size(), 10000u);
  EXPECT_EQ(open(path)->info().vectors, 20005u);
  // Changes for ever do not make it grow for ever.
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(again->add(make_vectors(4096, kDims, 4), make_ids(4096)).ok());
    ASSERT_TRUE(again->compact().ok());
    ASSERT_TRUE(again->save(path).ok());
  }
  EXPECT_LT(read_bytes(path).size(), 3 * first.size());
  EXPECT_EQ(open(path)->info().vectors, 20010u);  // ids 7 to 11 are back
}

TEST(IndexFile, AnotherWritersChangesAreNotWrittenOver) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  ASSERT_TRUE(
      filled({kDims, 4, Metric::kInnerProduct, KeptVectors::kNone, 0}, 100)->save(path).ok());
  auto one = open(path);
  auto two = open(path);
  ASSERT_TRUE(one->remove(make_ids(10)).ok());
  ASSERT_TRUE(one->save(path).ok());
  ASSERT_TRUE(two->remove(make_ids(20)).ok());
  ASSERT_TRUE(two->save(path).ok());  // the last one counts, as a whole
  EXPECT_EQ(open(path)->info().vectors, 80u);
  EXPECT_EQ(find(*one, make_vectors(1, kDims, 2), {.k = 200})[0].size(), 90u);
}

TEST(IndexFile, AKillAtAnyMomentLeavesAWholeIndex) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  constexpr size_t kStep = 50;
  auto index = filled({kDims, 4, Metric::kInnerProduct, KeptVectors::kHalf, 0}, kStep);
  ASSERT_TRUE(index->save(path).ok());
  std::mt19937 random(7);
  size_t least = kStep;
  for (int round = 0; round < 25; ++round) {
    int to_parent[2];
    ASSERT_EQ(::pipe(to_parent), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // adds and saves until it is killed; says so after each save
      auto mine = VectorIndex::open(path, {1, ""});
      if (!mine.ok()) ::_exit(1);
      for (;;) {
        const auto n = static_cast<int64_t>((*mine)->info().vectors);
        if (!(*mine)->add(make_vectors(kStep, kDims, 3), make_ids(kStep, n)).ok()) ::_exit(1);
        if (!(*mine)->save(path).ok()) ::_exit(1);
        const uint64_t now = (*mine)->info().vectors;
        if (::write(to_parent[1], &now, sizeof now) != sizeof now) ::_exit(1);
      }
    }
    ::close(to_parent[1]);
    uint64_t saved = 0;
    for (int saves = 0; saves < 2; ++saves) {  // it has done something before it is killed
      ASSERT_EQ(::read(to_parent[0], &saved, sizeof saved), static_cast<ssize_t>(sizeof saved));
    }
    ::usleep(static_cast<useconds_t>(random() % 3000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed";
    while (::read(to_parent[0], &saved, sizeof saved) == sizeof saved) {
    }
    ::close(to_parent[0]);
    auto back = open(path);
    ASSERT_NE(back, nullptr) << round;
    const uint64_t vectors = back->info().vectors;
    EXPECT_GE(vectors, saved) << "a save that returned was lost";
    EXPECT_LE(vectors, saved + kStep);
    EXPECT_EQ(vectors % kStep, 0u) << "half of an add";
    EXPECT_TRUE(back->verify().ok());
    EXPECT_EQ(find(*back, make_vectors(1, kDims, 2), {.k = 1 << 20})[0].size(), vectors);
    EXPECT_GE(vectors, least);
    least = vectors;
  }
}

TEST(IndexFile, DamageIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  ASSERT_TRUE(filled({kDims, 4, Metric::kL2, KeptVectors::kHalf, 1}, 600, true)->save(path).ok());
  const std::string good = read_bytes(path);
  const std::string bad = folder.path("bad.kvx");
  const std::vector<float> queries = make_vectors(3, kDims, 2);
  const auto expected = find(*open(path), queries, {.k = 20, .rerank = 600});
  std::mt19937 random(11);
  size_t refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = good;
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    write_bytes(bad, bytes);
    const auto opened = VectorIndex::open(bad, {1, ""});
    if (!opened.ok()) {
      EXPECT_NE(opened.status().message().find("bad.kvx"), std::string::npos);
      ++refused;
      continue;
    }
    const auto found = (*opened)->search(queries, {.k = 20, .rerank = 600});
    if (!found.ok()) {
      EXPECT_EQ(found.status().code(), StatusCode::kDamaged);
      ++refused;
      continue;
    }
    expect_same(*found, expected);  // a byte that nobody reads
  }
  EXPECT_GT(refused, 500u);
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{100}, size_t{8192}, good.size() / 2, good.size() - 1}) {
    write_bytes(bad, good.substr(0, length));
    const auto opened = VectorIndex::open(bad, {1, ""});
    EXPECT_FALSE(opened.ok()) << length;
    EXPECT_EQ(opened.status().code(), StatusCode::kDamaged);
  }
  write_bytes(bad, "\x93NUMPY" + std::string(10000, 'x'));
  EXPECT_NE(VectorIndex::open(bad).status().message().find("is not an index"), std::string::npos);
}

TEST(IndexFile, AnotherVersionIsUnsupported) {
  TemporaryFolder folder;
  const std::string path = folder.path("a.kvx");
  ASSERT_TRUE(filled({kDims, 4, Metric::kL2, KeptVectors::kNone, 0}, 10)->save(path).ok());
  std::string bytes = read_bytes(path);
  for (size_t block = 0; block < 2; ++block) {
    if (bytes[block * 4096] != 0) bytes[block * 4096 + 16] = 9;
  }
  write_bytes(path, bytes);
  IndexFileState state;
  auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok());
  const auto file = std::make_shared<const MappedFile>(std::move(*mapped));
  const auto parsed = parse_index(file, file->bytes(), "a", false, state);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(parsed.status().message().find("version 9"), std::string::npos);
}

}  // namespace
}  // namespace kvikk
