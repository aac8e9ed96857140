#include "drafting/model_drafter.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sampling/logprobs.h"

namespace kvikk {
namespace {

// A guess ends where it is less likely than this that all of it is right.
constexpr float kSurvivalMin = 0.25f;
constexpr size_t kSureTop = 32;  // logits that say how sure a guess is, where not all are computed

class ModelDrafter : public Drafter {
 public:
  ModelDrafter(Compute& compute, const DraftModelLimits& limits)
      : compute_(compute), limits_(limits), logits_(limits.vocabulary, -INFINITY) {}

  Status create(DraftModel model) {
    TRY_ASSIGN(model_, Model::create(std::move(model.source), std::move(model.config),
                                     std::move(model.weights), compute_, limits_.rows_max,
                                     limits_.context));
    const KvShape shape = Model::kv_shape(model_->config(), KvFormat::kBF16);
    std::vector<size_t> slabs;
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      slabs.push_back(limits_.sequences_max *
                      (shape.sequence_slabs(g, limits_.context, limits_.rows_max) + 1));
    }
    TRY_ASSIGN(PagePool pool, PagePool::create(shape, slabs));
    pool_ = std::make_unique<PagePool>(std::move(pool));
    TRY_ASSIGN(SamplerWorkspace workspace, SamplerWorkspace::create(limits_.vocabulary));
    workspace_ = std::make_unique<SamplerWorkspace>(std::move(workspace));
    return ok_status();
  }

  const char* name() const override { return "model"; }
  bool is_free() const override { return false; }
  std::unique_ptr<SequenceDrafter> begin(const Sampler& sampler) override;

  PagePool& pool() { return *pool_; }

  // Runs `tokens` after those that `kv` has; the logits that follow the last of them, in the form
  // of the target's: [limits_.vocabulary]. The `top` largest are there, others may be -infinity; 0:
  // all are. Empty where the cache is full.
  std::span<const float> run(std::span<const TokenId> tokens, SequenceKv& kv, size_t top) {
    for (size_t first = 0; first < tokens.size(); first += limits_.rows_max) {
      const auto part = tokens.subspan(first, std::min(limits_.rows_max, tokens.size() - first));
      if (!kv.reserve(part.size()).ok()) return {};
      batch_.clear();
      batch_.tokens.assign(part.begin(), part.end());
      batch_.spans.push_back({&kv, 0, part.size(), kv.length()});
      if (first + part.size() == tokens.size()) {
        batch_.output_rows.push_back(static_cast<uint32_t>(part.size() - 1));
      }
      model_->forward(compute_, batch_);
      kv.advance(part.size());
      kv.drop_unseen();
    }
    const auto row = model_->logits(compute_, 0, 1, top);
    const size_t known = std::min(limits_.vocabulary, model_->config().vocabulary);
    std::copy_n(row.begin(), known, logits_.begin());
    return logits_;
  }

  SamplerWorkspace& workspace() { return *workspace_; }

 private:
  Compute& compute_;
  DraftModelLimits limits_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<SamplerWorkspace> workspace_;
  std::vector<float> logits_;  // tokens that only the target has stay at -infinity
  Batch batch_;
};

class ModelSequence : public SequenceDrafter {
 public:
  ModelSequence(ModelDrafter& drafter, const Sampler& sampler)
      : drafter_(drafter),
        sampler_(sampler),
        top_(sampler.top_needed() == 0 ? 0 : std::max(sampler.top_needed(), kSureTop)),
        kv_(drafter.pool()) {}

  void propose(std::span<const TokenId> tokens, size_t most, Proposal& out) override {
    if (most == 0) return;
    take_back(tokens);
    std::span<const float> logits = run(tokens.subspan(kv_.length()));
    text_.assign(tokens.begin(), tokens.end());
    float survives = 1;
    while (!logits.empty()) {
      const auto drawn = sampler_.sample(logits, text_, text_.size(), drafter_.workspace());
      if (!drawn.ok()) return;
      const float sure = probability(logits, drawn->token);
      survives *= sure;
      if (survives < kSurvivalMin && !out.tokens.empty()) return;
      out.add(drawn->token, sure);
      text_.push_back(drawn->token);
      if (out.tokens.size() == most) return;
      logits = run(std::span(text_).last(1));
    }
  }

 private:
  // Among the logits that are there: a little more than the true one where not all are, which the
  // policy's tallies make up for.
  static float probability(std::span<const float> logits, TokenId token) {
    const float top = *std::max_element(logits.begin(), logits.end());
    const double total = log_sum_exp(logits, top);
    return static_cast<float>(std::exp(logits[static_cast<size_t>(token)] - total));
  }

  // Forgets what it guessed wrong: keeps what `tokens` begins with, but not the newest of them,
  // whose logits are wanted.
  void take_back(std::span<const TokenId> tokens) {
    const size_t most = std::min(fed_.size(), tokens.size() - 1);
    const auto [fed, text] =
        std::mismatch(fed_.begin(), fed_.begin() + static_cast<long>(most), tokens.begin());
    size_t same = static_cast<size_t>(fed - fed_.begin());
    if (!kv_.can_truncate(same)) same = 0;
    if (same == 0) {
      kv_ = SequenceKv(drafter_.pool());
    } else {
      kv_.truncate(same);
    }
    fed_.resize(same);
  }

  std::span<const float> run(std::span<const TokenId> tokens) {
    const auto logits = drafter_.run(tokens, kv_, top_);
    const size_t ran = kv_.length() - fed_.size();
    fed_.insert(fed_.end(), tokens.begin(), tokens.begin() + static_cast<long>(ran));
    return logits;
  }

  ModelDrafter& drafter_;
  const Sampler& sampler_;
  size_t top_;  // logits that are computed to the end; 0: all
  SequenceKv kv_;
  std::vector<TokenId> fed_;   // the tokens whose keys and values kv_ has
  std::vector<TokenId> text_;  // and the guess
};

std::unique_ptr<SequenceDrafter> ModelDrafter::begin(const Sampler& sampler) {
  return std::make_unique<ModelSequence>(*this, sampler);
}

}  // namespace

Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const size_t common = std::min(target.size(), draft.size());
  for (size_t i = 0; i < common; ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool is_same = target.token_bytes(id) == draft.token_bytes(id) &&
                         target.is_control(id) == draft.is_control(id);
    if (is_same) continue;
    return invalid_argument("the vocabularies differ: token " + std::to_string(i) + " is '" +
                            std::string(target.token_bytes(id)) + "' here and '" +
                            std::string(draft.token_bytes(id)) + "' in the draft model");
  }
  if (common * 2 < target.size()) {
    return invalid_argument("the draft model has " + std::to_string(draft.size()) +
                            " tokens and the model " + std::to_string(target.size()));
  }
  return ok_status();
}

Result<std::unique_ptr<Drafter>> make_model_drafter(DraftModel model,
                                                    const DraftModelLimits& limits,
                                                    Compute& compute) {
  auto drafter = std::make_unique<ModelDrafter>(compute, limits);
  TRY(drafter->create(std::move(model)));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

}  // namespace kvikk
