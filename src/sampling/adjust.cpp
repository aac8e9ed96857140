// Rules that move the logits of single tokens: logit_bias, and the three penalties on tokens that
// were said lately.

#include <utility>

#include "sampling/rules.h"

namespace kvikk {
namespace {

class LogitBiasRule : public LogitsRule {
 public:
  explicit LogitBiasRule(std::vector<LogitBias> entries) : entries_(std::move(entries)) {}

  void apply(const DrawContext&, SamplerWorkspace& workspace) const override {
    const auto logits = workspace.candidates.edit();
    for (const LogitBias& entry : entries_) {
      float& logit = logits[static_cast<size_t>(entry.token)];
      set_finite(logit, static_cast<double>(logit) + entry.bias);
    }
  }

 private:
  std::vector<LogitBias> entries_;
};

// repetition_penalty is Keskar et al. 2019 (CTRL) as in Hugging Face transformers; presence and
// frequency are OpenAI's: logit -= frequency * count + presence * (count > 0). Counts are over the
// window.
class PenaltiesRule : public LogitsRule {
 public:
  explicit PenaltiesRule(const SamplingOptions& o)
      : repetition_(o.repetition_penalty),
        presence_(o.presence_penalty),
        frequency_(o.frequency_penalty),
        window_tokens_(o.penalty_last_n) {}

  void apply(const DrawContext& draw, SamplerWorkspace& workspace) const override {
    const auto logits = workspace.candidates.edit();
    const auto tally = workspace.tally();
    const auto window = last_tokens(draw.history, window_tokens_);
    for (const TokenId token : window) {
      // A history may hold ids that cannot be drawn (a placeholder of an image, say).
      if (static_cast<size_t>(token) < tally.size()) ++tally[static_cast<size_t>(token)];
    }
    for (const TokenId token : window) {
      if (static_cast<size_t>(token) >= tally.size()) continue;
      const int32_t count = std::exchange(tally[static_cast<size_t>(token)], 0);
      if (count == 0) continue;  // met before
      float& logit = logits[static_cast<size_t>(token)];
      const double scaled = logit > 0 ? logit / repetition_ : logit * repetition_;
      set_finite(logit, scaled - count * frequency_ - presence_);
    }
  }

 private:
  double repetition_, presence_, frequency_;
  int32_t window_tokens_;
};

}  // namespace

RuleResult make_logit_bias(const RuleRequest& request) {
  if (request.options.logit_bias.empty()) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<LogitBiasRule>(request.options.logit_bias));
}

RuleResult make_penalties(const RuleRequest& request) {
  const SamplingOptions& o = request.options;
  const bool neutral =
      o.repetition_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0;
  if (neutral || o.penalty_last_n == 0) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<PenaltiesRule>(o));
}

}  // namespace kvikk
