// Drafters that look only at the tokens: what they guess, against a plain search of the text.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "drafting/registry.h"

namespace kvikk {
namespace {

using Tokens = std::vector<TokenId>;

class TokenDrafter : public testing::TestWithParam<const char*> {
 protected:
  TokenDrafter()
      : sampler_(std::move(*Sampler::create({}, 1000))),
        drafter_(make_token_drafter(*parse_spec(GetParam()))),
        sequence_(drafter_->begin(sampler_)) {}

  Proposal propose(const Tokens& text, size_t most) {
    Proposal out;
    sequence_->propose(text, most, out);
    EXPECT_LE(out.tokens.size(), most);
    EXPECT_EQ(out.tokens.size(), out.confidence.size());
    for (const float sure : out.confidence) EXPECT_TRUE(sure >= 0 && sure <= 1) << sure;
    return out;
  }

  Sampler sampler_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<SequenceDrafter> sequence_;
};

TEST_P(TokenDrafter, CopiesWhatStoodThere) {
  EXPECT_EQ(drafter_->name(), std::string(GetParam()));
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4};
  EXPECT_EQ(propose(text, 3).tokens, (Tokens{5, 6, 7}));
  EXPECT_EQ(propose(text, 8).tokens, (Tokens{5, 6, 7, 8, 9, 1, 2, 3}));
  EXPECT_EQ(propose(text, 12).tokens, (Tokens{5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_P(TokenDrafter, SaysNothingOfNewText) {
  EXPECT_TRUE(propose({7}, 8).tokens.empty());
  Tokens text;
  for (TokenId i = 0; i < 200; ++i) text.push_back(i);
  EXPECT_TRUE(propose(text, 8).tokens.empty());
}

TEST_P(TokenDrafter, GrowsWithTheText) {
  std::mt19937 random(3);
  Tokens text;
  for (int i = 0; i < 60; ++i) text.push_back(static_cast<TokenId>(random() % 900));
  const Tokens first = text;
  // The same again, token by token: everything from the fifth on can be guessed.
  for (size_t i = 0; i < first.size(); ++i) {
    const Proposal guess = propose(text, 1);
    if (i >= 5) {
      ASSERT_EQ(guess.tokens, Tokens{first[i]}) << i;
    }
    text.push_back(first[i]);
  }
}

// A guess always stood in the text after the token that ends it now.
TEST_P(TokenDrafter, GuessesOnlyWhatOccurred) {
  std::mt19937 random(5);
  Tokens text;
  size_t guessed = 0;
  for (int step = 0; step < 3000; ++step) {
    text.push_back(static_cast<TokenId>(random() % 3));
    const Proposal guess = propose(text, 4);
    if (guess.tokens.empty()) continue;
    ++guessed;
    const Tokens pattern = {text.back(), guess.tokens[0]};
    EXPECT_NE(std::search(text.begin(), text.end(), pattern.begin(), pattern.end()), text.end());
  }
  EXPECT_GT(guessed, 2000u);
}

// Endless repetition is the worst case of both the tree and the search.
TEST_P(TokenDrafter, RepetitionStaysCheap) {
  Tokens text(20'000, 1);
  EXPECT_EQ(propose(text, 4).tokens, Tokens(4, 1));
}

INSTANTIATE_TEST_SUITE_P(Drafters, TokenDrafter, testing::Values("ngram", "suffix"));

// The continuation that occurred more often is taken, and its share says how sure that is.
TEST(SuffixDrafterTest, CountsDecide) {
  const Sampler sampler = std::move(*Sampler::create({}, 1000));
  const auto drafter = make_token_drafter(*parse_spec("suffix"));
  const auto sequence = drafter->begin(sampler);
  Tokens text;
  for (int i = 0; i < 10; ++i) {
    const TokenId next = i % 5 == 0 ? 50 : 60;  // 2 of 10 and 8 of 10
    text.insert(text.end(), {static_cast<TokenId>(100 + i), 7, 8, next});
  }
  text.insert(text.end(), {999, 7, 8});
  Proposal guess;
  sequence->propose(text, 1, guess);
  ASSERT_EQ(guess.tokens, Tokens{60});
  EXPECT_LT(guess.confidence[0], 0.8);
  EXPECT_GT(guess.confidence[0], 0.4);
}

TEST(SpecTest, Names) {
  EXPECT_EQ(parse_spec("")->drafter, "");
  EXPECT_EQ(parse_spec("none")->drafter, "");
  EXPECT_EQ(parse_spec("auto")->drafter, "suffix");
  EXPECT_EQ(parse_spec("model:a/b.gguf")->model, "a/b.gguf");
  for (const char* wrong : {"model:", "model", "eagle", "Suffix"}) {
    const auto choice = parse_spec(wrong);
    ASSERT_FALSE(choice.ok()) << wrong;
    EXPECT_NE(choice.status().message().find("none, auto, ngram, suffix or model:MODEL"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace kvikk
