// PastText: what it finds, what it forgets, and who it tells.

#include "drafting/past_text.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kvikk {
namespace {

std::vector<TokenId> run_of(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<TokenId> guess(const PastText& past, uint64_t client, std::vector<TokenId> text,
                           size_t most = 5) {
  Proposal out;
  past.propose(client, text, most, out);
  EXPECT_EQ(out.tokens.size(), out.confidence.size());
  return out.tokens;
}

TEST(PastText, WhatFollowedFollowsAgainUntilTheAnswerEnds) {
  PastText past(100);
  past.add(0, run_of(10, 20));
  past.add(0, run_of(50, 20));
  EXPECT_EQ(guess(past, 0, run_of(12, 4)), run_of(16, 5));
  EXPECT_EQ(guess(past, 0, {1, 2, 12, 13, 14, 15}), run_of(16, 5));
  EXPECT_EQ(guess(past, 0, run_of(24, 4)), run_of(28, 2));  // not on into the next answer
  EXPECT_TRUE(guess(past, 0, run_of(26, 4)).empty());       // its last four
  EXPECT_TRUE(guess(past, 0, run_of(12, 3)).empty());       // too little to be sure of
  EXPECT_TRUE(guess(past, 0, {}).empty());
  EXPECT_TRUE(guess(past, 0, run_of(12, 4), 0).empty());
}

TEST(PastText, TheLongerMatchIsTakenAndTrustedMore) {
  PastText past(1000);
  std::vector<TokenId> longer = run_of(0, 30);
  longer.push_back(777);
  past.add(0, longer);
  std::vector<TokenId> newer = run_of(26, 4);
  newer.push_back(888);
  past.add(0, newer);
  Proposal out;
  past.propose(0, run_of(10, 20), 1, out);
  ASSERT_EQ(out.tokens, std::vector<TokenId>{777});
  Proposal shorter;
  past.propose(0, run_of(26, 4), 1, shorter);
  ASSERT_EQ(shorter.tokens, std::vector<TokenId>{888});
  EXPECT_GT(out.confidence[0], shorter.confidence[0]);
}

TEST(PastText, EachClientFindsItsOwn) {
  PastText past(100);
  past.add(1, run_of(10, 20));
  EXPECT_EQ(guess(past, 1, run_of(12, 4)), run_of(16, 5));
  EXPECT_TRUE(guess(past, 2, run_of(12, 4)).empty());
}

TEST(PastText, TheOldestIsForgotten) {
  PastText past(64);
  for (TokenId answer = 0; answer < 2000; ++answer) {
    past.add(0, run_of(answer * 100, 20));
    ASSERT_EQ(guess(past, 0, run_of(answer * 100 + 2, 4)), run_of(answer * 100 + 6, 5));
    if (answer < 5) continue;
    ASSERT_TRUE(guess(past, 0, run_of((answer - 4) * 100 + 2, 4)).empty());
  }
  past.add(0, run_of(1, 500));  // more than there is room for: its end
  EXPECT_EQ(guess(past, 0, run_of(470, 4)), run_of(474, 5));
  EXPECT_TRUE(guess(past, 0, run_of(100, 4)).empty());
}

TEST(PastText, NothingIsKeptWithoutRoom) {
  PastText past(0);
  past.add(0, run_of(10, 20));
  EXPECT_TRUE(guess(past, 0, run_of(12, 4)).empty());
}

}  // namespace
}  // namespace kvikk
