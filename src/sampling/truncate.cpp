// Filters that drop the unlikely tail: top_n_sigma, top_k, typical_p, top_p, min_p. Each sees what
// the one before it left, with probabilities renormalised over that.

#include <cmath>

#include "sampling/numeric.h"
#include "sampling/rules.h"

namespace kvikk {
namespace {

// Tang et al. 2024, "Top-n-sigma: not all logits are you need": logits within n standard deviations
// of the top one, the deviation being that of the whole row (forbidden tokens aside).
class TopNSigmaRule : public LogitsRule {
 public:
  explicit TopNSigmaRule(double n) : n_(n) {}

  void apply(const DrawContext&, SamplerWorkspace& workspace) const override {
    Candidates& candidates = workspace.candidates;
    const double top = candidates.row().top();
    double count = 0, sum = 0, sum_squares = 0;  // of the distances to the top
    for (const float logit : candidates.row().logits()) {
      if (logit == LogitBlocks::kForbidden) continue;
      const double distance = top - logit;
      count += 1;
      sum += distance;
      sum_squares += distance * distance;
    }
    const double mean = sum / count;
    const double variance = std::max(0.0, sum_squares / count - mean * mean);
    candidates.keep_from(top - n_ * std::sqrt(variance));
  }

 private:
  double n_;
};

class TopKRule : public LogitsRule {
 public:
  explicit TopKRule(size_t count) : count_(count) {}

  void apply(const DrawContext&, SamplerWorkspace& workspace) const override {
    workspace.candidates.keep_top(count_);
  }

 private:
  size_t count_;
};

// Meister et al. 2022, "Locally typical sampling": the tokens whose surprise -log p is nearest to
// the entropy, until they hold the mass.
class TypicalPRule : public LogitsRule {
 public:
  explicit TypicalPRule(double mass) : mass_(mass) {}

  void apply(const DrawContext&, SamplerWorkspace& workspace) const override {
    Candidates& candidates = workspace.candidates;
    const auto items = candidates.weigh();
    const double top = candidates.row().top();
    const double total = Candidates::total_weight(items);
    double mean_distance = 0;  // of the logit to the top, under the distribution
    for (const Candidate& c : items) {
      mean_distance += c.weight / total * (top - c.logit);
    }
    // -log p - entropy = log(total) + (top - logit) - (log(total) + mean distance).
    const auto untypical = [&](const Candidate& c) {
      return std::fabs((top - c.logit) - mean_distance);
    };
    const auto before = [&](const Candidate& a, const Candidate& b) {
      const double ka = untypical(a), kb = untypical(b);
      return ka < kb || (ka == kb && a.token < b.token);
    };
    candidates.keep_first(select_mass(items, mass_ * total, before));
  }

 private:
  double mass_;
};

// Holtzman et al. 2019, "The curious case of neural text degeneration" (nucleus sampling).
class TopPRule : public LogitsRule {
 public:
  explicit TopPRule(double mass) : mass_(mass) {}

  void apply(const DrawContext&, SamplerWorkspace& workspace) const override {
    workspace.candidates.keep_mass(mass_);
  }

 private:
  double mass_;
};

// Nguyen et al. 2024, "Turning up the heat: min-p sampling": p >= min_p * the highest p, which is a
// threshold on the logits.
class MinPRule : public LogitsRule {
 public:
  explicit MinPRule(double min_p) : distance_(-log_positive(min_p)) {}

  void apply(const DrawContext&, SamplerWorkspace& workspace) const override {
    Candidates& candidates = workspace.candidates;
    candidates.keep_from(candidates.top() - distance_);
  }

 private:
  double distance_;
};

}  // namespace

RuleResult make_top_n_sigma(const RuleRequest& request) {
  if (request.options.top_n_sigma == 0) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<TopNSigmaRule>(request.options.top_n_sigma));
}

RuleResult make_top_k(const RuleRequest& request) {
  if (request.options.top_k <= 0) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<TopKRule>(static_cast<size_t>(request.options.top_k)));
}

RuleResult make_typical_p(const RuleRequest& request) {
  if (request.options.typical_p == 1) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<TypicalPRule>(request.options.typical_p));
}

RuleResult make_top_p(const RuleRequest& request) {
  if (request.options.top_p == 1) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<TopPRule>(request.options.top_p));
}

RuleResult make_min_p(const RuleRequest& request) {
  if (request.options.min_p == 0) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<MinPRule>(request.options.min_p));
}

}  // namespace kvikk
