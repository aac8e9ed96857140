// The policy against a machine whose costs and a drafter whose odds are known.

#include "drafting/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvikk {
namespace {

constexpr size_t kMost = 16;

// Tokens per second of drafts of n tokens that are right with probability `right` each.
double speed(double right, size_t n, double row, double guess) {
  double tokens = 1, survives = 1;
  for (size_t i = 0; i < n; ++i) tokens += survives *= right;
  return tokens / (1 + row * static_cast<double>(n) + guess * static_cast<double>(n));
}

size_t best_length(double right, double row, double guess) {
  size_t best = 0;
  for (size_t n = 1; n <= kMost; ++n) {
    if (speed(right, n, row, guess) > speed(right, best, row, guess)) best = n;
  }
  return best;
}

struct Outcome {
  double tokens = 0, seconds = 0;
  size_t guesses = 0;
};

// One sequence.
Outcome run(DraftPolicy& policy, double right, double row, double guess, int steps) {
  GuessOdds odds;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  Outcome total;
  const std::vector<float> confidence(kMost, 0.8f);
  for (int step = 0; step < steps; ++step) {
    size_t n = 0;
    double seconds = 1;
    const bool drafts = policy.begin_step(1);
    if (drafts && guess > 0) {
      n = policy.length_to_guess({1, 1}, kMost, odds);
      policy.observe_guess(n, guess * static_cast<double>(n));
      seconds += guess * static_cast<double>(n);
    } else if (drafts) {
      n = policy.length({1, 1}, confidence, odds);
    }
    total.guesses += n > 0;
    size_t accepted = 0;
    while (accepted < n && uniform(random) < right) ++accepted;
    policy.observe_outcome(std::span(confidence).first(n), accepted, accepted < n, odds);
    const double step_seconds = 1 + row * static_cast<double>(n);
    policy.observe_step(1 + n, step_seconds);
    total.tokens += 1 + static_cast<double>(accepted);
    total.seconds += seconds + step_seconds - 1;
  }
  return total;
}

Outcome run(double right, double row, double guess, int steps) {
  DraftPolicy policy(64);
  return run(policy, right, row, guess, steps);
}

TEST(DraftPolicyTest, ReachesTheBestSpeed) {
  for (const double right : {0.5, 0.8, 0.95}) {
    for (const double row : {0.05, 0.2}) {
      for (const double guess : {0.0, 0.1}) {
        const Outcome got = run(right, row, guess, 4000);
        const double best = speed(right, best_length(right, row, guess), row, guess);
        EXPECT_GT(got.tokens / got.seconds, 0.95 * best)
            << right << " right, a row costs " << row << ", a guess " << guess;
      }
    }
  }
}

TEST(DraftPolicyTest, StopsWhereItLoses) {
  // A row costs half a step, a guess 0.4 of one, and one in five is right.
  const Outcome guessed = run(0.2, 0.5, 0.4, 4000);
  EXPECT_GT(guessed.tokens / guessed.seconds, 0.98);
  EXPECT_LT(guessed.guesses, 200u);
  EXPECT_GT(guessed.guesses, 30u) << "it must look again from time to time";
  const Outcome free = run(0.02, 0.5, 0, 4000);
  EXPECT_GT(free.tokens / free.seconds, 0.98);
}

// After much text that is easy to guess, one that is not: it must not take as long to notice.
TEST(DraftPolicyTest, ASequenceIsJudgedByItsOwnGuesses) {
  for (const double guess : {0.0, 0.4}) {
    DraftPolicy policy(64);
    run(policy, 0.99, 0.05, guess, 1000);
    const Outcome hard = run(policy, 0.1, 0.2, guess, 100);
    EXPECT_GT(hard.tokens / hard.seconds, guess > 0 ? 0.82 : 0.85) << guess;
    const Outcome easy = run(policy, 0.99, 0.05, guess, 100);
    EXPECT_GT(easy.tokens / easy.seconds, guess > 0 ? 1.5 : 6) << guess;
  }
}

// A draft model reads the prompt before it can guess.
TEST(DraftPolicyTest, ReadsOnlyWhatTheAnswerGivesBack) {
  DraftPolicy policy(64);
  const GuessOdds odds;
  EXPECT_TRUE(policy.worth_reading(32, 1, odds)) << "little is always read";
  EXPECT_FALSE(policy.worth_reading(33, 1000, odds)) << "nothing is known of a step yet";
  run(policy, 0.9, 0.05, 0.2, 500);
  const double best = speed(0.9, best_length(0.9, 0.05, 0.2), 0.05, 0.2);
  policy.observe_reading(1000, 50);  // of a plain step's time, 0.05 a token
  for (int i = 0; i < 50; ++i) policy.observe_answer(200);
  const double saved = 200 * (1 - 1 / best);  // steps, of an answer of the usual length
  EXPECT_TRUE(policy.worth_reading(static_cast<size_t>(0.7 * saved / 0.05), 1000, odds));
  EXPECT_FALSE(policy.worth_reading(static_cast<size_t>(1.3 * saved / 0.05), 1000, odds));
  EXPECT_FALSE(policy.worth_reading(static_cast<size_t>(0.7 * saved / 0.05), 20, odds))
      << "the answer ends soon";
  DraftPolicy losing(64);
  run(losing, 0.1, 0.2, 0.4, 500);
  EXPECT_FALSE(losing.worth_reading(33, 1000, odds)) << "guesses lose";
}

TEST(DraftPolicyTest, LearnsWhatConfidenceMeans) {
  DraftPolicy policy(8);
  GuessOdds odds;
  const float sure = 0.9f, unsure = 0.3f;
  for (int i = 0; i < 200; ++i) {
    policy.observe_outcome(std::span(&sure, 1), 1, false, odds);
    policy.observe_outcome(std::span(&unsure, 1), 0, true, odds);
  }
  EXPECT_GT(policy.right(sure), 0.95);
  EXPECT_LT(policy.right(unsure), 0.05);
}

TEST(DraftPolicyTest, StepsBetweenThoseSeen) {
  DraftPolicy policy(8);
  EXPECT_EQ(policy.step_seconds(3), 0);
  policy.observe_step(1, 1.0);
  EXPECT_GT(policy.step_seconds(5), 1.0);
  policy.observe_step(5, 2.0);
  EXPECT_DOUBLE_EQ(policy.step_seconds(3), 1.5);
  policy.observe_step(99, 2.0);  // of no interest, and harmless
}

}  // namespace
}  // namespace kvikk
