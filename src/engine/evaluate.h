#pragma once
// Exact figures about a model: logits, perplexity, and the distance between two ways of running it.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace kvikk {

// Feeds `tokens` in chunks of the engine's option and calls `row` with the logits [vocabulary] of
// each of `positions` (ascending), then decodes `greedy` tokens, one step each. Errors:
// kInvalidArgument (no tokens, a token outside the vocabulary, a position outside or out of order),
// kExhausted (longer than the context), whatever `row` returns.
struct LogitsRequest {
  std::span<const TokenId> tokens;
  std::span<const uint32_t> positions;
  size_t greedy = 0;
  std::function<Status(size_t index, std::span<const float> logits)> row;
  std::function<bool()> cancelled;
};
Result<std::vector<TokenId>> evaluate_logits(Engine& engine, const LogitsRequest& request);

struct KlReport {
  size_t tokens = 0;  // positions compared
  double mean = 0, standard_error = 0, median = 0, percentile_99 = 0, percentile_999 = 0, max = 0;
  double same_top_1 = 0;  // fraction
  double perplexity = 0, perplexity_base = 0, ln_perplexity_ratio = 0;
};

// KL(base || test) over chunks of `context` tokens, each from an empty cache; all positions but the
// last. Where test's cache drops tokens behind a prompt, the first half of a chunk is the prompt
// and the positions behind it are compared.
Result<KlReport> evaluate_kl(Engine& base, Engine& test, std::span<const TokenId> tokens,
                             size_t context, size_t chunks_max,
                             const std::function<void(size_t done, size_t total)>& progress = {});

// Mean KL(base || test) of two caches of this engine's model, in pools that fit its chunk, over the
// tokens from `scored_from` on. Errors: those of the tokens; kExhausted (a pool is too small).
Result<double> evaluate_cache_kl(Engine& engine, PagePool& base, PagePool& test,
                                 std::span<const TokenId> tokens, size_t scored_from);

struct PerplexityReport {
  size_t tokens = 0;
  double perplexity = 0, standard_error = 0;
};
Result<PerplexityReport> evaluate_perplexity(
    Engine& engine, std::span<const TokenId> tokens, size_t context, size_t chunks_max,
    const std::function<void(size_t done, size_t total)>& progress = {});

}  // namespace kvikk
