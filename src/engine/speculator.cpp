#include "engine/speculator.h"

#include <algorithm>
#include <chrono>

namespace kvikk {

void Speculator::propose(Sequence& sequence, size_t most, DraftPolicy::Step& step) {
  Proposal& draft = sequence.draft;
  draft.clear();
  most = std::min(most, kDraftTokensMax);
  if (fixed_length_ > 0) {
    most = std::min(most, fixed_length_);
  } else if (!drafter_->is_free()) {
    most = policy_.length_to_guess(step, most);
  }
  if (most == 0) return;
  const auto start = Sequence::Clock::now();
  sequence.drafter->propose(sequence.tokens, most, draft);
  const std::chrono::duration<double> seconds = Sequence::Clock::now() - start;
  policy_.observe_guess(draft.tokens.size(), seconds.count());
  if (fixed_length_ == 0) draft.shorten(policy_.length(step, draft.confidence));
  double survives = 1;
  for (const float confidence : draft.confidence) {
    survives *= policy_.right(confidence);
    step.tokens += survives;
  }
  step.rows += draft.tokens.size();
}

void Speculator::observe(Sequence& sequence, size_t accepted, bool next_was_wrong) {
  const size_t drafted = sequence.draft.tokens.size();
  if (drafted == 0) return;
  policy_.observe_outcome(sequence.draft.confidence, accepted, next_was_wrong);
  stats_.drafted += drafted;
  stats_.accepted += accepted;
  ++stats_.drafts;
  sequence.completion.drafted_tokens += drafted;
  sequence.completion.accepted_tokens += accepted;
}

}  // namespace kvikk
