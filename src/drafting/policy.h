#pragma once
// How much to draft, decided by measurement: what steps of so many rows take, what a guess costs,
// and how often tokens of which the drafter was so sure were right. The decision changes only
// speed.
//
// A draft of n tokens in a step of R rows that gives E tokens without it is worth
//     (E + sum of a_j) / (T(R + n) + cost of guessing),   a_j: probability that j tokens are right
// tokens per second; the best n is taken, and none where the gain is too small to be sure of.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvikk {

// How well a sequence's guesses do beside what the policy expects of guesses: code that is copied
// and prose that is not take turns in one server, and each is known after a few guesses.
class GuessOdds {
 public:
  // A guess that was expected to be right with that probability.
  void observe(double expected, bool right);
  // What an expected probability is worth here.
  double adjust(double expected) const;
  // A text begins with short guesses, which get longer as they turn out right.
  size_t most_to_guess() const { return 2 + static_cast<size_t>(right_); }

 private:
  double right_ = 0, expected_ = 0;  // sums in which older guesses count less
};

class DraftPolicy {
 public:
  static constexpr double kGainMin = 1.03;     // below this a draft is not worth its rows
  static constexpr int kLossesMax = 32;        // so many guesses in a row not worth it: a pause
  static constexpr int64_t kPlainEvery = 128;  // of so many steps one without drafts, to know both
  static constexpr int64_t kPauseOfLoss = 3;   // steps between such guesses
  static constexpr int64_t kPauseMin = 16, kPauseMax = 1024;  // steps

  explicit DraftPolicy(size_t rows_max)
      : seconds_(rows_max + 1, 0.0), plain_step_(rows_max + 1, -kPlainEvery) {}

  // Whether the coming step, of `rows` rows without drafts, should have any.
  bool begin_step(size_t rows);
  // A step of `rows` rows, all of them decoding, took so long.
  void observe_step(size_t rows, double seconds);
  // Guessing `tokens` tokens took so long.
  void observe_guess(size_t tokens, double seconds);
  // Before it could guess, a drafter had to read `tokens` tokens of text, which took so long.
  void observe_reading(size_t tokens, double seconds);
  // An answer had so many tokens.
  void observe_answer(size_t tokens);
  // Of tokens with these confidences, in order, `right` were right; the next one was wrong unless
  // all were right or nobody looked. `odds`: of the sequence.
  void observe_outcome(std::span<const float> confidence, size_t right, bool next_was_wrong,
                       GuessOdds& odds);

  // What the step is so far: `rows` rows that give `tokens` tokens.
  struct Step {
    double tokens = 0;
    size_t rows = 0;
  };
  // How many of the tokens of a guess that is made already to take.
  size_t length(const Step& step, std::span<const float> confidence, const GuessOdds& odds);
  // How many tokens to guess, up to `most`, where guessing itself takes time; 0 also in a pause.
  // `sequences` of the step will share it.
  size_t length_to_guess(const Step& step, size_t most, const GuessOdds& odds);

  // Whether a drafter that must first read `tokens` tokens gets that back before the answer ends,
  // which has at most `left` more tokens.
  bool worth_reading(size_t tokens, size_t left, const GuessOdds& odds) const;

  // What a step of so many rows is expected to take; 0 while nothing is known.
  double step_seconds(size_t rows) const;
  // The probability that a token of this confidence is right, in any sequence.
  double right(float confidence) const;

 private:
  static constexpr size_t kBuckets = 16;
  static size_t bucket(float confidence);
  double gain(const Step& step, double tokens, size_t rows, double guessing) const;
  struct Best {
    size_t tokens = 0;
    double gain = 0;
  };
  // Of guesses of up to `most` tokens that take so long each.
  Best best_guess(const Step& step, size_t most, const GuessOdds& odds, double guess_seconds) const;

  std::vector<double> seconds_;      // [rows]: moving mean; 0: never seen
  std::vector<int64_t> plain_step_;  // [rows]: when a step without drafts had so many
  int64_t steps_ = 0;
  double guess_seconds_ = 0;    // a token
  double reading_seconds_ = 0;  // a token; 0: not known
  double answer_tokens_ = 0;    // of an answer; 0: not known
  struct Tally {
    double right = 0, seen = 0;
  };
  std::array<Tally, kBuckets> tallies_ = {};
  Tally all_;
  int losses_ = 0;
  int64_t pause_ = 0;  // steps that are left of it
  int64_t next_pause_ = kPauseMin;
};

}  // namespace kvikk
