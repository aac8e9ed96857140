// What goes round in circles is noticed, and what only looks like it is not.

#include "serving/repetition_guard.h"

#include <gtest/gtest.h>

#include <random>

namespace kvikk {
namespace {

// One token a byte.
std::string bytes_of(TokenId token) { return std::string(1, static_cast<char>(token)); }

// How many bytes of the text pass before it repeats itself; all where it does not.
size_t passed(const std::string& text) {
  RepetitionGuard guard(bytes_of);
  for (size_t i = 0; i < text.size(); ++i) {
    if (guard.push(text[i])) return i;
  }
  return text.size();
}

std::string times(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// The definition, slowly: whether the text ends in too many repeats of what has no shorter period.
bool repeats(const std::string& text) {
  for (size_t period = 1; period <= 64 && 2 * period <= text.size(); ++period) {
    const std::string unit = text.substr(text.size() - period);
    bool primitive = true;
    for (size_t part = 1; part < period && primitive; ++part) {
      primitive = period % part != 0 || times(unit.substr(0, part), period / part) != unit;
    }
    if (!primitive) continue;
    size_t count = 1;
    while ((count + 1) * period <= text.size() &&
           text.substr(text.size() - (count + 1) * period, period) == unit) {
      ++count;
    }
    const bool filler = unit.find_first_not_of(" \n\t0123456789-=_*#.~|") == std::string::npos;
    const size_t needed = filler        ? 64
                          : period == 1 ? 4
                                        : std::max<size_t>(4, (31 + period) / period);
    if (count >= needed) return true;
  }
  return false;
}

TEST(RepetitionGuard, OneTokenFourTimes) {
  EXPECT_EQ(passed("xyaaaab"), 5u);
  EXPECT_EQ(passed("aaabaaabbbaaa"), 13u);
}

TEST(RepetitionGuard, FillersMayRepeatLonger) {
  EXPECT_EQ(passed("a" + times("-", 63) + "b"), 65u);
  EXPECT_EQ(passed("a" + times("-", 64)), 64u);
  EXPECT_EQ(passed(times("|---", 63)), 252u);
  EXPECT_EQ(passed(times("0", 63) + times("\n", 63)), 126u);
}

TEST(RepetitionGuard, PeriodsOfSeveralTokens) {
  EXPECT_EQ(passed(times("ab", 15)), 30u);
  EXPECT_EQ(passed("x" + times("ab", 20)), 32u);
  const std::string sentence = "the cat sat on a mat, ";
  EXPECT_EQ(passed(times(sentence, 3) + "end"), 3 * sentence.size() + 3);
  EXPECT_EQ(passed("So:" + times(sentence, 9)), 2 + 4 * sentence.size());
}

TEST(RepetitionGuard, IsTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const std::string alphabet = round % 3 == 0 ? "a-" : round % 3 == 1 ? "abc" : "-|";
    while (text.size() < 300) {
      std::string unit;
      for (size_t i = random() % 20; i < 20; ++i) unit += alphabet[random() % alphabet.size()];
      text += times(unit, 1 + random() % 6);
    }
    size_t expected = 0;
    while (expected < text.size() && !repeats(text.substr(0, expected + 1))) ++expected;
    ASSERT_EQ(passed(text), expected) << text;
  }
}

}  // namespace
}  // namespace kvikk
