// Pages: reservation, truncation, forks that diverge, sliding windows, the prefix tree, saved
// caches.

#include "kv/sequence_kv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "kv/prefix_tree.h"

namespace kvikk {
namespace {

constexpr size_t kWindow = 100;

KvShape shape_with_window() {
  KvShape shape;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  shape.groups = {KvGroup{{0, 2}, 0}, KvGroup{{1}, kWindow}};
  return shape;
}

PagePool pool_of(size_t slabs) {
  auto pool = PagePool::create(shape_with_window(), {slabs, slabs});
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

// Marks what a token would store, so that copies can be told apart.
void mark(SequenceKv& kv, size_t position, uint8_t value) {
  for (size_t g = 0; g < kv.slab_count(0) && g < 2; ++g) {
    const SlabId slab = kv.slab(g, position / kPageTokens);
    if (slab != kNoSlab) kv.pool().slab(g, slab)[position % kPageTokens] = value;
  }
}
uint8_t marked(SequenceKv& kv, size_t group, size_t position) {
  return kv.pool().slab(group, kv.slab(group, position / kPageTokens))[position % kPageTokens];
}

void append(SequenceKv& kv, size_t tokens, uint8_t value) {
  ASSERT_TRUE(kv.reserve(tokens).ok());
  for (size_t i = 0; i < tokens; ++i) mark(kv, kv.length() + i, value);
  kv.advance(tokens);
}

TEST(SequenceKv, ReservesWholePagesAndGivesThemBack) {
  PagePool pool = pool_of(4);
  {
    SequenceKv kv(pool);
    append(kv, 1, 1);
    EXPECT_EQ(pool.free_slabs(0), 3u);
    append(kv, 63, 1);
    EXPECT_EQ(pool.free_slabs(0), 3u);
    append(kv, 1, 1);
    EXPECT_EQ(pool.free_slabs(0), 2u);
    EXPECT_EQ(kv.length(), 65u);
  }
  EXPECT_EQ(pool.free_slabs(0), 4u);
  EXPECT_EQ(pool.free_slabs(1), 4u);
}

TEST(SequenceKv, AFullPoolIsAnErrorNotACrash) {
  PagePool pool = pool_of(2);
  SequenceKv kv(pool);
  EXPECT_TRUE(kv.reserve(128).ok());
  EXPECT_EQ(kv.reserve(129).code(), StatusCode::kExhausted);
}

TEST(SequenceKv, NewSlabsAreZero) {
  PagePool pool = pool_of(1);
  {
    SequenceKv kv(pool);
    append(kv, 64, 255);
  }
  SequenceKv kv(pool);
  append(kv, 1, 1);
  for (size_t i = 1; i < 64; ++i) EXPECT_EQ(marked(kv, 0, i), 0);
}

TEST(SequenceKv, TruncateKeepsWhatIsBefore) {
  PagePool pool = pool_of(4);
  SequenceKv kv(pool);
  append(kv, 90, 7);
  kv.truncate(70);
  EXPECT_EQ(kv.length(), 70u);
  EXPECT_EQ(marked(kv, 0, 69), 7);
  kv.truncate(64);
  EXPECT_EQ(pool.free_slabs(0), 3u);
  append(kv, 10, 9);
  EXPECT_EQ(marked(kv, 0, 63), 7);
  EXPECT_EQ(marked(kv, 0, 64), 9);
}

TEST(SequenceKv, ForksShareUntilTheyDiverge) {
  PagePool pool = pool_of(6);
  SequenceKv first(pool);
  append(first, 100, 1);
  SequenceKv second = first.fork();
  EXPECT_EQ(pool.free_slabs(0), 4u);
  append(second, 5, 2);
  EXPECT_EQ(pool.free_slabs(0), 3u) << "the page both were writing to is copied, the other is not";
  append(first, 5, 3);
  EXPECT_EQ(marked(first, 0, 99), 1);
  EXPECT_EQ(marked(second, 0, 99), 1);
  EXPECT_EQ(marked(first, 0, 102), 3);
  EXPECT_EQ(marked(second, 0, 102), 2);
  EXPECT_EQ(first.slab(0, 0), second.slab(0, 0));
}

TEST(SequenceKv, SlidingLayersKeepOnlyWhatTheySee) {
  PagePool pool = pool_of(8);
  SequenceKv kv(pool);
  append(kv, 227, 1);
  kv.drop_unseen();
  // The next token is 227 and sees 128..227: pages 0 and 1 are gone, in the sliding group only.
  EXPECT_EQ(kv.slab(1, 0), kNoSlab);
  EXPECT_EQ(kv.slab(1, 1), kNoSlab);
  EXPECT_NE(kv.slab(1, 2), kNoSlab);
  EXPECT_NE(kv.slab(0, 0), kNoSlab);
  EXPECT_EQ(pool.free_slabs(1), 6u);
  EXPECT_TRUE(kv.can_truncate(227));
  EXPECT_FALSE(kv.can_truncate(226)) << "token 226 sees 127, which is gone";
  EXPECT_TRUE(kv.can_truncate(0)) << "the first token sees nothing";
}

TEST(SequenceKv, OneTokenBeforeTheWindowMovesNothingIsDropped) {
  PagePool pool = pool_of(8);
  SequenceKv kv(pool);
  append(kv, 162, 1);  // token 162 sees 63..162
  kv.drop_unseen();
  EXPECT_NE(kv.slab(1, 0), kNoSlab);
  append(kv, 1, 1);  // token 163 sees 64..163
  kv.drop_unseen();
  EXPECT_EQ(kv.slab(1, 0), kNoSlab);
}

std::vector<TokenId> tokens_of(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (auto& token : tokens) token = static_cast<TokenId>(random() % 1000);
  return tokens;
}

TEST(PrefixTree, AttachesTheLongestKnownPrefix) {
  PagePool pool = pool_of(16);
  PrefixTree tree(pool);
  const auto tokens = tokens_of(200, 1);
  {
    SequenceKv kv(pool);
    append(kv, 200, 5);
    EXPECT_EQ(tree.insert(tokens, 0, kv), 3u);
  }
  SequenceKv same(pool);
  EXPECT_EQ(tree.attach(tokens, 199, same), 192u);
  EXPECT_EQ(marked(same, 0, 10), 5);
  SequenceKv shorter(pool);
  EXPECT_EQ(tree.attach(tokens, 191, shorter), 128u);
  auto changed = tokens;
  changed[70] += 1;
  SequenceKv other(pool);
  EXPECT_EQ(tree.attach(changed, 199, other), 64u);
  SequenceKv stranger(pool);
  EXPECT_EQ(tree.attach(tokens_of(200, 2), 199, stranger), 0u);
}

TEST(PrefixTree, APrefixWhoseWindowIsGoneIsCutToWhatIsWhole) {
  PagePool pool = pool_of(16);
  PrefixTree tree(pool);
  const auto tokens = tokens_of(320, 1);
  {
    SequenceKv kv(pool);
    append(kv, 320, 5);
    kv.drop_unseen();  // pages 0..2 of the sliding group are gone before the tree hears of them
    tree.insert(tokens, 0, kv);
  }
  SequenceKv whole(pool);
  EXPECT_EQ(tree.attach(tokens, 320, whole), 320u);
  SequenceKv cut(pool);
  EXPECT_EQ(tree.attach(tokens, 256, cut), 0u) << "token 256 sees 157, whose page is gone";
}

TEST(PrefixTree, PartOfABlockIsTakenUpAndCopiedBeforeItIsWritten) {
  PagePool pool = pool_of(16);
  PrefixTree tree(pool);
  const auto tokens = tokens_of(128, 1);
  auto branch = tokens;  // the same up to token 79
  branch[80] += 1;
  auto changed = tokens;
  changed[100] += 1;
  const auto remember = [&](const std::vector<TokenId>& known, uint8_t value) {
    SequenceKv kv(pool);
    append(kv, 128, value);
    tree.insert(known, 0, kv, 3);
  };
  remember(branch, 6);
  remember(tokens, 5);
  const auto take = [&](SequenceKv& kv, size_t most, uint64_t salt) {
    tree.attach(changed, most, kv, salt);
    return tree.extend(changed, most, kv, salt);
  };
  SequenceKv other(pool);
  EXPECT_EQ(take(other, 127, 4), 0u) << "another client's";
  SequenceKv shorter(pool);
  EXPECT_EQ(take(shorter, 90, 3), 90u);
  SequenceKv kv(pool);
  EXPECT_EQ(take(kv, 127, 3), 100u) << "the child that has most in common";
  append(kv, 20, 9);
  EXPECT_EQ(marked(kv, 0, 99), 5);
  EXPECT_EQ(marked(kv, 0, 100), 9);
  SequenceKv again(pool);
  tree.attach(tokens, 128, again, 3);
  EXPECT_EQ(again.length(), 128u);
  EXPECT_EQ(marked(again, 0, 100), 5) << "the known block was written to";
  SequenceKv none(pool);
  EXPECT_EQ(tree.extend(tokens_of(128, 2), 127, none, 3), 0u);
}

TEST(PrefixTree, TheEndOfAPromptIsKnownBeforeItsBlockIsFull) {
  PagePool pool = pool_of(16);
  PrefixTree tree(pool);
  const auto tokens = tokens_of(128, 1);
  {
    SequenceKv kv(pool);
    append(kv, 100, 5);
    tree.insert(tokens, 0, kv, 3);
    tree.insert_part(tokens, kv, 3);
    tree.insert_part(tokens, kv, 3);  // known
    EXPECT_EQ(tree.blocks(), 2u);
    append(kv, 28, 9);  // the answer goes on in a copy
    tree.insert(tokens, 1, kv, 3);
    EXPECT_EQ(tree.blocks(), 3u);
  }
  SequenceKv kv(pool);
  EXPECT_EQ(tree.attach(tokens, 99, kv, 3), 64u) << "no whole block";
  EXPECT_EQ(tree.extend(tokens, 99, kv, 3), 99u);
  EXPECT_EQ(marked(kv, 0, 98), 5);
  SequenceKv whole(pool);
  EXPECT_EQ(tree.attach(tokens, 128, whole, 3), 128u);
  EXPECT_EQ(marked(whole, 0, 127), 9);
  SequenceKv little(pool);
  append(little, 7, 1);
  tree.insert_part(tokens_of(7, 5), little, 3);
  EXPECT_EQ(tree.blocks(), 3u) << "so little is not worth a slab";
  tree.clear();
  EXPECT_EQ(tree.slabs(0), 0u);
}

TEST(PrefixTree, APartWhoseWindowIsGoneIsNotTakenUp) {
  PagePool pool = pool_of(16);
  PrefixTree tree(pool);
  const auto tokens = tokens_of(320, 1);
  {
    SequenceKv kv(pool);
    append(kv, 320, 5);
    kv.drop_unseen();
    tree.insert(tokens, 0, kv);
  }
  SequenceKv kv(pool);
  EXPECT_EQ(tree.attach(tokens, 300, kv), 0u);
  EXPECT_EQ(tree.extend(tokens, 300, kv), 0u) << "the first page of the sliding layers is gone";
}

TEST(PrefixTree, GivesBackTheLeastRecentlyUsed) {
  PagePool pool = pool_of(4);
  PrefixTree tree(pool);
  const auto a = tokens_of(64, 1);
  const auto b = tokens_of(64, 2);
  for (const auto& tokens : {a, b}) {
    SequenceKv kv(pool);
    append(kv, 64, 1);
    tree.insert(tokens, 0, kv);
  }
  {
    SequenceKv touch(pool);
    EXPECT_EQ(tree.attach(a, 64, touch), 64u);
  }
  tree.make_free(0, 3);
  EXPECT_EQ(pool.free_slabs(0), 3u);
  SequenceKv kept(pool);
  EXPECT_EQ(tree.attach(a, 64, kept), 64u);
  SequenceKv gone(pool);
  EXPECT_EQ(tree.attach(b, 64, gone), 0u);
}

TEST(PrefixTree, ClearReturnsEverything) {
  PagePool pool = pool_of(16);
  {
    PrefixTree tree(pool);
    for (uint32_t seed = 0; seed < 4; ++seed) {
      SequenceKv kv(pool);
      append(kv, 130, 1);
      tree.insert(tokens_of(130, seed), 0, kv);
    }
    EXPECT_EQ(tree.blocks(), 8u);
    EXPECT_EQ(pool.free_slabs(0), 8u);
  }
  EXPECT_EQ(pool.free_slabs(0), 16u);
  EXPECT_EQ(pool.free_slabs(1), 16u);
}

class SavedSequence : public testing::Test {
 protected:
  std::string path_ =
      testing::TempDir() + "kvikk_saved_sequence_" + std::to_string(::getpid()) + ".kv";
  void TearDown() override { std::remove(path_.c_str()); }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& data) const { std::ofstream(path_, std::ios::binary) << data; }
};

TEST_F(SavedSequence, ComesBackByteForByte) {
  PagePool pool = pool_of(16);
  SequenceKv kv(pool);
  append(kv, 230, 3);
  kv.drop_unseen();
  const auto tokens = tokens_of(230, 1);
  ASSERT_TRUE(save_sequence(kv, tokens, "model-a", path_).ok());
  PagePool other = pool_of(16);
  auto loaded = load_sequence(other, "model-a", path_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->tokens, tokens);
  EXPECT_EQ(loaded->sequence.length(), 230u);
  EXPECT_EQ(loaded->sequence.slab(1, 0), kNoSlab);
  EXPECT_EQ(std::memcmp(other.slab(0, loaded->sequence.slab(0, 3)), pool.slab(0, kv.slab(0, 3)),
                        pool.shape().slab_bytes(0)),
            0);
  append(loaded->sequence, 10, 4);
}

TEST_F(SavedSequence, AnotherModelOrShapeIsRefusedByName) {
  PagePool pool = pool_of(4);
  SequenceKv kv(pool);
  append(kv, 10, 3);
  ASSERT_TRUE(save_sequence(kv, tokens_of(10, 1), "model-a", path_).ok());
  const auto wrong = load_sequence(pool, "model-b", path_);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("model-b"), std::string::npos);
}

TEST_F(SavedSequence, EveryDamagedByteAndEveryCutIsNoticed) {
  PagePool pool = pool_of(4);
  SequenceKv kv(pool);
  append(kv, 10, 3);
  ASSERT_TRUE(save_sequence(kv, tokens_of(10, 1), "m", path_).ok());
  const std::string good = bytes();
  for (size_t i = 0; i < good.size(); i += 97) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    write(bad);
    EXPECT_FALSE(load_sequence(pool, "m", path_).ok()) << "byte " << i;
    write(good.substr(0, i));
    EXPECT_FALSE(load_sequence(pool, "m", path_).ok()) << "cut at " << i;
  }
  EXPECT_EQ(pool.free_slabs(0), 3u) << "a refused file leaves no page taken";
}

TEST_F(SavedSequence, AFullDiskIsAnErrorAndLeavesNoFile) {
  PagePool pool = pool_of(4);
  SequenceKv kv(pool);
  append(kv, 10, 3);
  EXPECT_EQ(save_sequence(kv, tokens_of(10, 1), "m", "/nonexistent/folder/x.kv").code(),
            StatusCode::kIo);
}

TEST_F(SavedSequence, TooSmallAPoolSaysSo) {
  PagePool pool = pool_of(8);
  SequenceKv kv(pool);
  append(kv, 300, 3);
  ASSERT_TRUE(save_sequence(kv, tokens_of(300, 1), "m", path_).ok());
  PagePool small = pool_of(2);
  EXPECT_EQ(load_sequence(small, "m", path_).status().code(), StatusCode::kExhausted);
  EXPECT_EQ(small.free_slabs(0), 2u);
}

}  // namespace
}  // namespace kvikk
