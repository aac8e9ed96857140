#pragma once
// Drafts for the sequences of a step: asks the drafter, lets the policy say how much is worth it,
// and tells both what came of it.

#include <memory>

#include "drafting/drafter.h"
#include "drafting/past_text.h"
#include "drafting/policy.h"
#include "engine/sequence.h"

namespace kvikk {

struct SpeculationStats {
  uint64_t drafted = 0;   // tokens
  uint64_t accepted = 0;  // of them
  uint64_t drafts = 0;
};

class Speculator {
 public:
  // fixed_length: so many tokens are drafted whenever the drafter has them; 0: as the policy says.
  // past_tokens: of answers that are remembered for later requests.
  Speculator(std::unique_ptr<Drafter> drafter, size_t fixed_length, size_t past_tokens,
             size_t rows_max)
      : drafter_(std::move(drafter)),
        past_(past_tokens),
        fixed_length_(fixed_length),
        policy_(rows_max) {}

  void begin(Sequence& sequence) { sequence.drafter = drafter_->begin(sequence.sampler); }
  // The sequence says nothing more.
  void end(const Sequence& sequence);

  // Whether the coming step, of `rows` rows without drafts, should have any.
  bool begin_step(size_t rows) { return fixed_length_ > 0 || policy_.begin_step(rows); }
  // Fills sequence.draft with at most `most` tokens and adds them to what the step is so far.
  void propose(Sequence& sequence, size_t most, DraftPolicy::Step& step);
  // What came of sequence.draft. next_was_wrong: another token was drawn where the first one that
  // was not accepted stands.
  void observe(Sequence& sequence, size_t accepted, bool next_was_wrong);
  // A step of decoding rows only.
  void observe_step(size_t rows, double seconds) { policy_.observe_step(rows, seconds); }

  const SpeculationStats& stats() const { return stats_; }

 private:
  void guess(Sequence& sequence, size_t most, const DraftPolicy::Step& step);

  std::unique_ptr<Drafter> drafter_;
  PastText past_;
  size_t fixed_length_;
  DraftPolicy policy_;
  SpeculationStats stats_;
};

}  // namespace kvikk
