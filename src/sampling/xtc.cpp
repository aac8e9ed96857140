// XTC, "exclude top choices" (p-e-w 2024, text-generation-webui #6335): with some probability the
// obvious tokens are taken away, so that text leaves the worn path, and one viable token always
// stays.

#include "sampling/rules.h"

namespace kvikk {
namespace {

class XtcRule : public LogitsRule {
 public:
  XtcRule(double probability, double threshold)
      : probability_(probability), threshold_(threshold) {}

  void apply(const DrawContext& draw, SamplerWorkspace& workspace) const override {
    if (uniform(draw.key, RandomStream::kXtc, 0) >= probability_) return;
    Candidates& candidates = workspace.candidates;
    const auto items = candidates.weigh();
    const double enough = threshold_ * Candidates::total_weight(items);
    const auto is_top_choice = [&](const Candidate& c) { return c.weight >= enough; };
    // The last of the top choices, by logit and then by token, stays.
    const Candidate* stays = nullptr;
    for (const Candidate& c : items) {
      if (!is_top_choice(c)) continue;
      const bool later = stays == nullptr || c.logit < stays->logit ||
                         (c.logit == stays->logit && c.token > stays->token);
      if (later) stays = &c;
    }
    if (stays == nullptr) return;
    const TokenId kept = stays->token;
    size_t count = 0;
    for (const Candidate& c : items) {
      if (c.token == kept || !is_top_choice(c)) items[count++] = c;
    }
    candidates.keep_first(count);
  }

 private:
  double probability_, threshold_;
};

}  // namespace

RuleResult make_xtc(const RuleRequest& request) {
  const SamplingOptions& o = request.options;
  if (o.xtc_probability == 0) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<XtcRule>(o.xtc_probability, o.xtc_threshold));
}

}  // namespace kvikk
