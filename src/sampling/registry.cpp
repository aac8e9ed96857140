// The chain: which rules there are, and in which order they act. The order is llama.cpp's, because
// that is what users' settings were tuned for: filters see the distribution before temperature.

#include "sampling/rules.h"

namespace kvikk {

std::span<const RuleDef> rule_registry() {
  static constexpr RuleDef kRules[] = {
      {"logit_bias", RuleStage::kAdjust, make_logit_bias},
      {"penalties", RuleStage::kAdjust, make_penalties},
      {"dry", RuleStage::kAdjust, make_dry},
      {"top_n_sigma", RuleStage::kFilter, make_top_n_sigma},
      {"top_k", RuleStage::kFilter, make_top_k},
      {"typical_p", RuleStage::kFilter, make_typical_p},
      {"top_p", RuleStage::kFilter, make_top_p},
      {"min_p", RuleStage::kFilter, make_min_p},
      {"xtc", RuleStage::kFilter, make_xtc},
  };
  return kRules;
}

}  // namespace kvikk
