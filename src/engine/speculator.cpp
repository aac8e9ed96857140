#include "engine/speculator.h"

#include <algorithm>
#include <chrono>

namespace kvikk {

void Speculator::end(const Sequence& sequence) {
  if (sequence.drafter == nullptr) return;  // it never began
  policy_.observe_answer(sequence.tokens.size() - sequence.prompt_tokens());
  past_.add(sequence.request.client, std::span(sequence.tokens).subspan(sequence.prompt_tokens()));
}

// The surer one of past answers and the drafter. One that takes time is asked only where past
// answers know nothing.
void Speculator::guess(Sequence& sequence, size_t most, const DraftPolicy::Step& step) {
  Proposal past;
  past_.propose(sequence.request.client, sequence.tokens, most, past);
  if (!drafter_->is_free()) {
    if (!past.tokens.empty()) return std::swap(sequence.draft, past);
    const size_t unread =
        sequence.tokens.size() - std::min(sequence.tokens.size(), sequence.guessed_until);
    const size_t left = sequence.tokens_max - sequence.tokens.size();
    if (fixed_length_ == 0 && !policy_.worth_reading(unread, left, sequence.odds)) return;
    if (fixed_length_ == 0) most = policy_.length_to_guess(step, most, sequence.odds);
    if (most == 0) return;
  }
  const auto start = Sequence::Clock::now();
  sequence.drafter->propose(sequence.tokens, most, sequence.draft);
  const std::chrono::duration<double> seconds = Sequence::Clock::now() - start;
  // After a pause, and behind a prompt, a guess catches up with the text: no measure of the next.
  const size_t guessed = sequence.draft.tokens.size();
  if (sequence.tokens.size() <= sequence.guessed_until + 1) {
    policy_.observe_guess(guessed, seconds.count());
  } else {
    policy_.observe_reading(sequence.tokens.size() - sequence.guessed_until, seconds.count());
  }
  sequence.guessed_until = sequence.tokens.size() + guessed;
  if (past.tokens.empty()) return;
  const bool is_surer =
      sequence.draft.tokens.empty() || past.confidence.front() > sequence.draft.confidence.front();
  if (is_surer) std::swap(sequence.draft, past);
}

void Speculator::propose(Sequence& sequence, size_t most, DraftPolicy::Step& step) {
  Proposal& draft = sequence.draft;
  draft.clear();
  most = std::min(most, kDraftTokensMax);
  if (fixed_length_ > 0) most = std::min(most, fixed_length_);
  if (most == 0) return;
  guess(sequence, most, step);
  if (fixed_length_ == 0) draft.shorten(policy_.length(step, draft.confidence, sequence.odds));
  double survives = 1;
  for (const float confidence : draft.confidence) {
    survives *= sequence.odds.adjust(policy_.right(confidence));
    step.tokens += survives;
  }
  step.rows += draft.tokens.size();
}

void Speculator::observe(Sequence& sequence, size_t accepted, bool next_was_wrong) {
  const size_t drafted = sequence.draft.tokens.size();
  if (drafted == 0) return;
  policy_.observe_outcome(sequence.draft.confidence, accepted, next_was_wrong, sequence.odds);
  stats_.drafted += drafted;
  stats_.accepted += accepted;
  ++stats_.drafts;
  sequence.completion.drafted_tokens += drafted;
  sequence.completion.accepted_tokens += accepted;
}

}  // namespace kvikk
