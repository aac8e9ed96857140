// Blocks on the disk: they come back as they were or not at all, within bounds, and the prefix tree
// goes on with them.

#include "kv/prefix_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kv/prefix_tree.h"

namespace kvikk {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMany = uint64_t{1} << 30;

KvShape shape() {
  KvShape shape;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  shape.groups = {KvGroup{{0, 2}, 0}, KvGroup{{1}, 100}};
  return shape;
}

PagePool pool_of(size_t slabs) {
  auto pool = PagePool::create(shape(), {slabs, slabs});
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

std::vector<TokenId> tokens_of(size_t count, TokenId first) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class PrefixOnDisk : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<PrefixStore> open(uint64_t bytes_max = kMany, const std::string& who = "me") {
    auto store = PrefixStore::open(folder_, bytes_max, who, shape());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }

  // Two slabs, filled with `value`.
  std::vector<SlabId> filled(PagePool& pool, uint8_t value) {
    std::vector<SlabId> slabs;
    for (size_t g = 0; g < 2; ++g) {
      slabs.push_back(pool.allocate(g));
      std::fill_n(pool.slab(g, slabs[g]), pool.shape().slab_bytes(g), value);
    }
    return slabs;
  }

  // Writes one block, and closes the store.
  BlockKey write_one(uint8_t value, std::span<const TokenId> tokens) {
    PagePool pool = pool_of(1);
    const BlockKey key = PrefixStore::key_of(nullptr, tokens, 0);
    open()->put(key, tokens, pool, filled(pool, value), true);
    return key;
  }

  // What `tree` remembers of `tokens` [256], whose i-th slab begins with i + 1, goes to the disk.
  void give_up(PrefixTree& tree, PagePool& pool, std::span<const TokenId> tokens, uint64_t salt) {
    {
      SequenceKv kv(pool);
      ASSERT_TRUE(kv.reserve(256).ok());
      kv.advance(256);
      for (size_t i = 0; i < 4; ++i) pool.slab(0, kv.slab(0, i))[0] = static_cast<uint8_t>(i + 1);
      tree.insert(tokens, 0, kv, salt);
    }
    tree.make_free(0, pool.capacity(0));
    EXPECT_EQ(tree.blocks(), 0u);
    while (tree.store()->stats().blocks < 4) {
    }
  }

  const std::string folder_ =
      testing::TempDir() + "kvikk_prefix_store_" + std::to_string(::getpid());
};

TEST_F(PrefixOnDisk, ABlockComesBackInALaterRun) {
  const auto tokens = tokens_of(64, 5);
  const BlockKey key = write_one(7, tokens);
  const auto store = open();
  EXPECT_EQ(store->groups(key), 3u);
  PagePool pool = pool_of(1);
  const auto slabs = filled(pool, 0);
  ASSERT_TRUE(store->read(key, tokens, pool, slabs));
  for (size_t g = 0; g < 2; ++g) {
    for (size_t i = 0; i < pool.shape().slab_bytes(g); ++i) {
      ASSERT_EQ(pool.slab(g, slabs[g])[i], 7) << g << " " << i;
    }
  }
  EXPECT_EQ(store->stats().read, 1u);
  EXPECT_FALSE(store->read(key, tokens_of(64, 6), pool, slabs)) << "a hash is not the tokens";
}

TEST_F(PrefixOnDisk, ABlockGivenUpTwiceIsThereOnce) {
  const auto tokens = tokens_of(64, 5);
  const BlockKey key = PrefixStore::key_of(nullptr, tokens, 0);
  PagePool pool = pool_of(1);
  const auto slabs = filled(pool, 7);
  {
    const auto store = open();
    for (int i = 0; i < 3; ++i) store->put(key, tokens, pool, slabs, true);
  }
  EXPECT_EQ(files().size(), 1u);
  const auto store = open();
  EXPECT_TRUE(store->read(key, tokens, pool, slabs));
}

TEST_F(PrefixOnDisk, AFileOfGroupsThatAreNoneIsRemoved) {
  write_one(7, tokens_of(64, 5));
  const fs::path folder = files().at(0).parent_path();
  for (const char* groups : {"00000000", "00000004"}) {
    std::ofstream(folder / (std::string(32, '0') + "-" + groups + ".kv"));
  }
  ASSERT_EQ(files().size(), 3u);
  EXPECT_EQ(open()->stats().blocks, 1u);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(PrefixOnDisk, AKeyIsAllThatStandsBefore) {
  const auto a = tokens_of(64, 1);
  const auto b = tokens_of(64, 2);
  const BlockKey first = PrefixStore::key_of(nullptr, a, 0);
  EXPECT_EQ(PrefixStore::key_of(nullptr, a, 0), first);
  EXPECT_NE(PrefixStore::key_of(nullptr, a, 1), first);
  EXPECT_NE(PrefixStore::key_of(nullptr, b, 0), first);
  EXPECT_NE(PrefixStore::key_of(&first, a, 0), first);
}

TEST_F(PrefixOnDisk, AnotherModelFindsNothing) {
  const BlockKey key = write_one(7, tokens_of(64, 5));
  EXPECT_EQ(open(kMany, "another")->groups(key), 0u);
  EXPECT_EQ(open()->groups(key), 3u);
}

TEST_F(PrefixOnDisk, EveryDamageIsNoticed) {
  const auto tokens = tokens_of(64, 5);
  const auto size = [&] {
    write_one(7, tokens);
    return fs::file_size(files().at(0));
  }();
  for (const uint64_t at :
       {uint64_t{0}, uint64_t{9}, uint64_t{30}, uint64_t{40}, uint64_t{400}, size / 2, size - 1}) {
    const BlockKey key = write_one(7, tokens);
    const auto store = open();
    std::fstream file(files().at(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<long>(at));
    const auto byte = static_cast<char>(file.get());
    file.seekp(static_cast<long>(at));
    file.put(static_cast<char>(byte ^ 1));
    file.close();
    PagePool pool = pool_of(1);
    EXPECT_FALSE(store->read(key, tokens, pool, filled(pool, 0))) << at;
    EXPECT_EQ(store->groups(key), 0u) << "and it is not asked for again";
    EXPECT_TRUE(files().empty());
  }
  const BlockKey key = write_one(7, tokens);
  const auto store = open();
  fs::resize_file(files().at(0), size - 1);
  PagePool pool = pool_of(1);
  EXPECT_FALSE(store->read(key, tokens, pool, filled(pool, 0)));
  write_one(7, tokens);
  fs::resize_file(files().at(0), 10);
  EXPECT_EQ(open()->stats().blocks, 0u) << "a start removes what a crash cut off";
}

TEST_F(PrefixOnDisk, TheOldestGoWhenTheFolderIsFull) {
  write_one(0, tokens_of(64, 0));
  const uint64_t size = fs::file_size(files().at(0));
  fs::remove_all(folder_);
  PagePool pool = pool_of(1);
  const auto slabs = filled(pool, 1);
  std::vector<BlockKey> keys;
  {
    const auto store = open(3 * size);
    for (TokenId i = 0; i < 5; ++i) {
      const auto tokens = tokens_of(64, i);
      keys.push_back(PrefixStore::key_of(nullptr, tokens, 0));
      store->put(keys.back(), tokens, pool, slabs, true);
      // A later start goes by the files' times, which are no finer than some milliseconds.
      while (store->stats().written <= static_cast<uint64_t>(i)) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  EXPECT_EQ(files().size(), 3u);
  const auto store = open(2 * size);
  EXPECT_EQ(store->stats().bytes, 2 * size);
  for (TokenId i = 0; i < 5; ++i) {
    EXPECT_EQ(store->groups(keys[static_cast<size_t>(i)]) != 0, i >= 3) << i;
  }
}

TEST_F(PrefixOnDisk, ADiskThatFailsEndsTheWritingAndNothingElse) {
  const auto tokens = tokens_of(64, 5);
  PagePool pool = pool_of(1);
  const auto slabs = filled(pool, 1);
  const auto store = open();
  fs::remove_all(folder_);
  const BlockKey key = PrefixStore::key_of(nullptr, tokens, 0);
  store->put(key, tokens, pool, slabs, true);
  while (store->stats().error.empty()) {
  }
  EXPECT_EQ(store->stats().written, 0u);
  EXPECT_EQ(store->groups(key), 0u);
  store->put(key, tokens, pool, slabs, true);
}

TEST_F(PrefixOnDisk, TheTreeGoesOnWithWhatWentToTheDisk) {
  const auto tokens = tokens_of(256, 1);
  PagePool pool = pool_of(8);
  PrefixTree tree(pool);
  tree.set_store(open());
  give_up(tree, pool, tokens, 9);
  EXPECT_FALSE(tree.restore(tokens, 256, 8, kMany));
  EXPECT_EQ(tree.blocks(), 0u) << "another client's";
  EXPECT_TRUE(tree.restore(tokens, 256, 9, 1)) << "there is more";
  EXPECT_EQ(tree.blocks(), 1u);
  EXPECT_FALSE(tree.restore(tokens, 256, 9, kMany));
  SequenceKv kv(pool);
  ASSERT_EQ(tree.attach(tokens, 256, kv, 9), 256u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(pool.slab(0, kv.slab(0, i))[0], i + 1);
}

// What runs holds the rest: what comes back must neither take its pages nor push itself out.
TEST_F(PrefixOnDisk, WhatDoesNotFitStaysThere) {
  const auto tokens = tokens_of(256, 1);
  PagePool pool = pool_of(6);
  PrefixTree tree(pool);
  tree.set_store(open());
  give_up(tree, pool, tokens, 0);
  SequenceKv running(pool);
  ASSERT_TRUE(running.reserve(256).ok());
  EXPECT_FALSE(tree.restore(tokens, 256, 0, kMany));
  EXPECT_EQ(tree.blocks(), 2u);
  SequenceKv kv(pool);
  EXPECT_EQ(tree.attach(tokens, 256, kv), 128u);
}

}  // namespace
}  // namespace kvikk
