#include "drafting/policy.h"

#include <algorithm>

namespace kvikk {
namespace {

constexpr double kNewShare = 0.15;  // of a new measurement in a moving mean
constexpr double kForget = 0.995;   // what an older outcome is worth beside a new one
constexpr double kPriorWeight = 3;  // outcomes that a drafter's own confidence stands for
constexpr double kForgetInSequence = 0.98;
constexpr double kPriorInSequence = 5;     // outcomes that those of all sequences stand for
constexpr double kRowShareUnknown = 0.08;  // of T(1) that a row is taken to cost until it is seen

constexpr double kReadingShareUnknown = 0.04;  // of T(1) that reading a token is taken to cost
constexpr double kGuessShareUnknown = 0.4;     // the same of guessing one
constexpr double kAnswerTokensUnknown = 128;
constexpr size_t kReadAnyway = 32;  // so few tokens are always read

void blend(double* mean, double value) {
  *mean = *mean == 0 ? value : *mean + kNewShare * (value - *mean);
}

}  // namespace

void GuessOdds::observe(double expected, bool right) {
  expected_ = expected_ * kForgetInSequence + expected;
  right_ = right_ * kForgetInSequence + (right ? 1 : 0);
}

double GuessOdds::adjust(double expected) const {
  return std::min(1.0, expected * (right_ + kPriorInSequence) / (expected_ + kPriorInSequence));
}

bool DraftPolicy::begin_step(size_t rows) {
  if (rows >= seconds_.size()) return false;
  ++steps_;
  if (steps_ - plain_step_[rows] < kPlainEvery) return true;
  plain_step_[rows] = steps_;
  return false;
}

void DraftPolicy::observe_step(size_t rows, double seconds) {
  if (rows < seconds_.size()) blend(&seconds_[rows], seconds);
}

void DraftPolicy::observe_guess(size_t tokens, double seconds) {
  if (tokens > 0) blend(&guess_seconds_, seconds / static_cast<double>(tokens));
}

void DraftPolicy::observe_reading(size_t tokens, double seconds) {
  if (tokens > kReadAnyway) blend(&reading_seconds_, seconds / static_cast<double>(tokens));
}

void DraftPolicy::observe_answer(size_t tokens) {
  if (tokens > 0) blend(&answer_tokens_, static_cast<double>(tokens));
}

bool DraftPolicy::worth_reading(size_t tokens, size_t left, const GuessOdds& odds) const {
  const double step = step_seconds(1);
  if (tokens <= kReadAnyway) return true;
  if (step <= 0) return false;  // the next time
  const double reading = reading_seconds_ > 0 ? reading_seconds_ : kReadingShareUnknown * step;
  const double answer = answer_tokens_ > 0 ? answer_tokens_ : kAnswerTokensUnknown;
  const double guess = guess_seconds_ > 0 ? guess_seconds_ : kGuessShareUnknown * step;
  const double gain = best_guess({1, 1}, odds.most_to_guess(), odds, guess).gain;
  const double saved = std::min(static_cast<double>(left), answer) * step * (1 - 1 / gain);
  return saved > reading * static_cast<double>(tokens);
}

size_t DraftPolicy::bucket(float confidence) {
  const auto index = static_cast<size_t>(std::max(0.0f, confidence) * kBuckets);
  return std::min(index, kBuckets - 1);
}

void DraftPolicy::observe_outcome(std::span<const float> confidence, size_t right,
                                  bool next_was_wrong, GuessOdds& odds) {
  for (size_t i = 0; i < right + (next_was_wrong ? 1 : 0) && i < confidence.size(); ++i) {
    odds.observe(this->right(confidence[i]), i < right);
    for (Tally* tally : {&tallies_[bucket(confidence[i])], &all_}) {
      tally->right = tally->right * kForget + (i < right ? 1 : 0);
      tally->seen = tally->seen * kForget + 1;
    }
  }
}

double DraftPolicy::right(float confidence) const {
  const Tally& tally = tallies_[bucket(confidence)];
  return (tally.right + kPriorWeight * confidence) / (tally.seen + kPriorWeight);
}

double DraftPolicy::step_seconds(size_t rows) const {
  rows = std::min(rows, seconds_.size() - 1);
  if (seconds_[rows] > 0) return seconds_[rows];
  size_t below = rows, above = rows;
  while (below > 0 && seconds_[below] == 0) --below;
  while (above < seconds_.size() && seconds_[above] == 0) ++above;
  if (below == 0) {
    if (above == seconds_.size()) return 0;
    return seconds_[above] / (1 + kRowShareUnknown * static_cast<double>(above - rows));
  }
  const double slope = above < seconds_.size() ? std::max(0.0, seconds_[above] - seconds_[below]) /
                                                     static_cast<double>(above - below)
                                               : kRowShareUnknown * seconds_[below];
  return seconds_[below] + slope * static_cast<double>(rows - below);
}

double DraftPolicy::gain(const Step& step, double tokens, size_t rows, double guessing) const {
  const double before = step_seconds(step.rows);
  const double after = step_seconds(step.rows + rows) + guessing;
  if (before <= 0 || after <= 0) return 1 + tokens;  // nothing is known: try
  return (step.tokens + tokens) / after * (before / step.tokens);
}

size_t DraftPolicy::length(const Step& step, std::span<const float> confidence,
                           const GuessOdds& odds) {
  confidence = confidence.first(std::min(confidence.size(), odds.most_to_guess()));
  size_t best = 0;
  double best_gain = kGainMin;
  double survives = 1, tokens = 0;
  for (size_t i = 0; i < confidence.size(); ++i) {
    survives *= odds.adjust(right(confidence[i]));
    tokens += survives;
    const double g = gain(step, tokens, i + 1, 0);
    if (g <= best_gain) continue;
    best_gain = g;
    best = i + 1;
  }
  return best;
}

DraftPolicy::Best DraftPolicy::best_guess(const Step& step, size_t most, const GuessOdds& odds,
                                          double guess_seconds) const {
  const double rate = odds.adjust((all_.right + kPriorWeight * 0.7) / (all_.seen + kPriorWeight));
  most = std::min(most, odds.most_to_guess());
  Best best;
  double survives = 1, tokens = 0;
  for (size_t n = 1; n <= most; ++n) {
    survives *= rate;
    tokens += survives;
    const double g = gain(step, tokens, n, guess_seconds * static_cast<double>(n));
    if (g > best.gain) best = {n, g};
  }
  return best;
}

size_t DraftPolicy::length_to_guess(const Step& step, size_t most, const GuessOdds& odds) {
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  const Best best = best_guess(step, most, odds, guess_seconds_);
  if (best.gain >= kGainMin) {
    losses_ = 0;
    next_pause_ = kPauseMin;
    return best.tokens;
  }
  // Not worth it as far as is known. It goes on for a while, now and then, so that more is known.
  if (++losses_ < kLossesMax) {
    pause_ = kPauseOfLoss;
    return std::min<size_t>(best.tokens, 2);
  }
  losses_ = kLossesMax - 2;  // after the pause one more try decides
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kPauseMax);
  return 0;
}

}  // namespace kvikk
