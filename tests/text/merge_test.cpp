// Merging against the plain rule, written down as simply as possible: while any two neighbours
// merge, merge the best pair, and the leftmost of equals.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <map>
#include <random>
#include <set>

#include "text/tokenizer.h"
#include "text/vocabularies.h"

namespace kvikk {
namespace {

using Symbols = std::vector<std::string>;

// rank(left, right) is below INT_MAX where the two merge.
template <class Rank>
void merge_simply(Symbols* symbols, Rank rank) {
  for (;;) {
    int best = INT_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols->size(); ++i) {
      const int r = rank((*symbols)[i], (*symbols)[i + 1]);
      if (r < best) {
        best = r;
        at = i;
      }
    }
    if (best == INT_MAX) return;
    (*symbols)[at] += (*symbols)[at + 1];
    symbols->erase(symbols->begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

Symbols tokens_of(const Tokenizer& tokenizer, const std::string& text) {
  Symbols out;
  for (const TokenId id : tokenizer.encode(text, {})) out.emplace_back(tokenizer.token_bytes(id));
  return out;
}

std::string random_text(std::mt19937* random, std::string_view letters, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text.push_back(letters[(*random)() % letters.size()]);
  return text;
}

TEST(MergeTest, ByteLevelFollowsTheRule) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Symbols tokens = {"a", "b", "c"};
    std::set<std::string> known(tokens.begin(), tokens.end());
    std::vector<std::string> merges;
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (int i = 0; i < 25; ++i) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 12 || !known.insert(left + right).second) continue;
      ranks[{left, right}] = static_cast<int>(merges.size());
      merges.push_back(left + " " + right);
      tokens.push_back(left + right);
    }
    const Result<Tokenizer> tokenizer = Tokenizer::create(small_byte_vocabulary(merges));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(&random, "abc", random() % 40);
      Symbols expected;
      for (const char c : text) expected.emplace_back(1, c);
      merge_simply(&expected, [&](const std::string& left, const std::string& right) {
        const auto found = ranks.find({left, right});
        return found == ranks.end() ? INT_MAX : found->second;
      });
      ASSERT_EQ(tokens_of(*tokenizer, text), expected) << text;
    }
  }
}

TEST(MergeTest, SentencePieceFollowsTheRule) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    Symbols pieces = {"a", "b", " ", "c"};
    std::set<std::string> known(pieces.begin(), pieces.end());
    for (int i = 0; i < 30; ++i) {
      const std::string piece = random_text(&random, "ab c", 2 + random() % 5);
      if (known.insert(piece).second) pieces.push_back(piece);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::vector<std::string> written;
    for (const std::string& piece : pieces) {
      written.emplace_back();
      for (const char c : piece) written.back() += c == ' ' ? "\u2581" : std::string(1, c);
    }
    const Result<Tokenizer> tokenizer = Tokenizer::create(small_piece_vocabulary(written));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto order = [&](const std::string& piece) {
      const auto found = std::find(pieces.begin(), pieces.end(), piece);
      return found == pieces.end() ? -1 : static_cast<int>(found - pieces.begin());
    };
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(&random, "ab c", random() % 40);
      Symbols expected;
      for (const char c : text) expected.emplace_back(1, c);
      merge_simply(&expected, [&](const std::string& left, const std::string& right) {
        const int merged = order(left + right);
        // The ways to split one piece are ordered by the left part.
        return merged < 0 ? INT_MAX : merged * 100 + order(left);
      });
      ASSERT_EQ(tokens_of(*tokenizer, text), expected) << text;
    }
  }
}

}  // namespace
}  // namespace kvikk
