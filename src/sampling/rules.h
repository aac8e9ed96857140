#pragma once
// The make functions that registry.cpp lists. What each rule does is defined in docs/sampling.md.

#include "sampling/rule.h"

namespace kvikk {

using RuleResult = Result<std::unique_ptr<LogitsRule>>;

// Whether DRY has an effect.
bool is_dry_on(const SamplingOptions& options);

RuleResult make_logit_bias(const RuleRequest& request);
RuleResult make_penalties(const RuleRequest& request);
RuleResult make_dry(const RuleRequest& request);
RuleResult make_top_n_sigma(const RuleRequest& request);
RuleResult make_top_k(const RuleRequest& request);
RuleResult make_typical_p(const RuleRequest& request);
RuleResult make_top_p(const RuleRequest& request);
RuleResult make_min_p(const RuleRequest& request);
RuleResult make_xtc(const RuleRequest& request);

}  // namespace kvikk
