// Builds a request's chain from the registry and runs it.

#include "sampling/sampler.h"

#include "sampling/draw.h"
#include "sampling/logprobs.h"
#include "sampling/rules.h"

namespace kvikk {

Result<SamplerWorkspace> SamplerWorkspace::create(size_t vocabulary) {
  TRY_ASSIGN(Candidates candidates, Candidates::create(vocabulary));
  TRY_ASSIGN(Buffer tally, Buffer::allocate(vocabulary * sizeof(int32_t)));
  return SamplerWorkspace{std::move(candidates), std::move(tally), {}};
}

Status Sampler::check(const SamplingOptions& options, size_t vocabulary, bool has_text) {
  TRY(validate(options, vocabulary));
  if (has_text || !is_dry_on(options) || options.dry_sequence_breakers.empty()) return ok_status();
  return unsupported(
      "sampling option 'dry_sequence_breakers' needs the text of the tokens, and this model has no "
      "tokenizer: set it to an empty list or 'dry_multiplier' to 0");
}

Result<Sampler> Sampler::create(const SamplingOptions& options, size_t vocabulary,
                                const TokenBytes& token_bytes) {
  TRY(check(options, vocabulary, static_cast<bool>(token_bytes)));
  Sampler sampler;
  sampler.vocabulary_ = vocabulary;
  sampler.seed_ = static_cast<uint64_t>(options.seed == kFreshSeed ? fresh_seed() : options.seed);
  sampler.temperature_ = options.temperature;
  sampler.top_logprobs_ = static_cast<size_t>(options.top_logprobs);
  sampler.logprobs_ = options.logprobs || options.top_logprobs > 0;
  for (const RuleDef& def : rule_registry()) {
    TRY_ASSIGN(auto rule, def.make({options, token_bytes}));
    if (rule == nullptr) continue;
    auto& stage = def.stage == RuleStage::kAdjust ? sampler.adjust_ : sampler.filter_;
    stage.push_back(std::move(rule));
  }
  // Rules before top_k look at all logits, those after it at what it left.
  if (sampler.adjust_.empty() && !sampler.logprobs_) {
    if (options.temperature == 0) {
      sampler.top_needed_ = 1;
    } else if (options.top_k > 0 && options.top_n_sigma == 0) {
      sampler.top_needed_ = static_cast<size_t>(options.top_k);
    }
  }
  return sampler;
}

Status Sampler::narrow(std::span<const float> logits, std::span<const TokenId> history,
                       uint64_t position, SamplerWorkspace& workspace) const {
  CHECK(logits.size() == vocabulary_);
  Candidates& candidates = workspace.candidates;
  const DrawContext context{history, {seed_, position}};
  candidates.begin(logits);
  for (const auto& rule : adjust_) rule->apply(context, workspace);
  TRY(candidates.scan(position));
  if (temperature_ == 0) {
    candidates.keep_best();
    return ok_status();
  }
  for (const auto& rule : filter_) rule->apply(context, workspace);
  return ok_status();
}

Result<SampledToken> Sampler::sample(std::span<const float> logits,
                                     std::span<const TokenId> history, uint64_t position,
                                     SamplerWorkspace& workspace) const {
  TRY(narrow(logits, history, position, workspace));
  Candidates& candidates = workspace.candidates;
  SampledToken sampled;
  sampled.token = temperature_ == 0 ? candidates.list()[0].token
                                    : draw(candidates, temperature_, {seed_, position});
  if (logprobs_) {
    candidates.begin(logits);  // the raw row again: an adjusted one was scanned above
    TRY(candidates.scan(position));
    const double log_total = log_sum_exp(logits, candidates.row().top());
    sampled.logprob = static_cast<float>(logits[static_cast<size_t>(sampled.token)] - log_total);
    sampled.top = top_logprobs(candidates.row(), log_total, top_logprobs_);
  }
  return sampled;
}

}  // namespace kvikk
