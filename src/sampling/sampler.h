#pragma once
// From a row of logits to a token. A Sampler is one request's options made ready: immutable, so any
// thread may use it, and a draw is a pure function of (options, logits, history, position). Memory
// is in the workspace.
//
// The chain: kAdjust rules, the check for NaN, then either the best token (temperature 0) or the
// kFilter rules and the draw. docs/sampling.md defines each step.

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kvikk/options.h"
#include "kvikk/token.h"
#include "sampling/rule.h"

namespace kvikk {

struct SampledToken {
  TokenId token = 0;
  float logprob = NAN;            // of the raw logits; NaN unless options.logprobs or top_logprobs
  std::vector<TokenLogprob> top;  // [top_logprobs], the most likely first
};

class Sampler {
 public:
  // What create() refuses: kInvalidArgument names the option; kUnsupported when DRY with sequence
  // breakers lacks the tokens' text.
  static Status check(const SamplingOptions& options, size_t vocabulary, bool has_text);
  // `token_bytes`: only DRY with sequence breakers needs it. A seed of -1 is replaced by a fresh
  // one here. Errors: those of check().
  static Result<Sampler> create(const SamplingOptions& options, size_t vocabulary,
                                const TokenBytes& token_bytes = {});

  // The token at `position`. logits: [vocabulary], not modified. history: the prompt and everything
  // generated so far. workspace: created for the same vocabulary. Nothing is allocated unless
  // top_logprobs asks for it (and DRY's match lengths, when the window outgrows all before).
  // Errors: kDamaged when a logit is NaN or +infinity or all are -infinity.
  Result<SampledToken> sample(std::span<const float> logits, std::span<const TokenId> history,
                              uint64_t position, SamplerWorkspace& workspace) const;

  // sample() without the draw: leaves in workspace.candidates the tokens that may be drawn.
  Status narrow(std::span<const float> logits, std::span<const TokenId> history, uint64_t position,
                SamplerWorkspace& workspace) const;

  // How many of the largest logits (ties included) decide what is drawn, whatever the others are;
  // 0 where all may matter.
  size_t top_needed() const { return top_needed_; }

  uint64_t seed() const { return seed_; }
  double temperature() const { return temperature_; }

 private:
  Sampler() = default;

  size_t vocabulary_ = 0;
  uint64_t seed_ = 0;
  double temperature_ = 0;
  bool logprobs_ = false;
  size_t top_logprobs_ = 0;
  size_t top_needed_ = 0;
  std::vector<std::unique_ptr<LogitsRule>> adjust_, filter_;
};

}  // namespace kvikk
