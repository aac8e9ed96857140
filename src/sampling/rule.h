#pragma once
// One step of the chain between the model's logits and the draw. A rule is immutable once made, and
// what it does is a function of its options, the logits, the history and the position alone: it
// keeps no state between draws, so a request can be batched, resumed or speculated without changing
// what it says.
//
// To add a rule: a file with its make function and a line in registry.cpp, at its place in the
// chain.

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/buffer.h"
#include "base/status.h"
#include "kvikk/options.h"
#include "sampling/candidates.h"
#include "sampling/random.h"

namespace kvikk {

// The bytes that a token stands for; "" for a token without text. The views live as long as the
// function.
using TokenBytes = std::function<std::string_view(TokenId)>;

// The memory of a draw, reused from draw to draw and from request to request; one per thread that
// samples.
struct SamplerWorkspace {
  // Errors: kExhausted.
  static Result<SamplerWorkspace> create(size_t vocabulary);

  Candidates candidates;
  Buffer tally_memory;
  std::vector<int32_t> match_lengths;  // [window] of DRY; grows to the longest window seen

  std::span<int32_t> tally() {  // [vocabulary], all zero between uses
    return {tally_memory.as<int32_t>(), candidates.vocabulary()};
  }
};

struct DrawContext {
  std::span<const TokenId> history;  // prompt and everything generated so far, the newest last
  RandomKey key;
};

class LogitsRule {
 public:
  virtual ~LogitsRule() = default;
  virtual void apply(const DrawContext& draw, SamplerWorkspace& workspace) const = 0;
};

// kAdjust rules change logits (Candidates::edit), kFilter rules take tokens out of the choice.
// Greedy decoding runs the first kind only.
enum class RuleStage { kAdjust, kFilter };

struct RuleRequest {
  const SamplingOptions& options;  // validated
  const TokenBytes& token_bytes;   // may be empty
};

struct RuleDef {
  const char* name;
  RuleStage stage;
  // Null when the options leave the rule without effect.
  Result<std::unique_ptr<LogitsRule>> (*make)(const RuleRequest& request);
};

// All rules in the order in which they act: every kAdjust rule before every kFilter rule.
std::span<const RuleDef> rule_registry();

// The last `tokens` of the history; all of it when tokens is -1.
inline std::span<const TokenId> last_tokens(std::span<const TokenId> history, int32_t tokens) {
  const size_t count = tokens < 0 ? history.size() : static_cast<size_t>(tokens);
  return history.last(std::min(count, history.size()));
}

}  // namespace kvikk
