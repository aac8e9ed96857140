#pragma once
// Log-probabilities of the model's own distribution: softmax of the raw logits over the full
// vocabulary, before every rule and at temperature 1, summed in float64.

#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace kvikk {

// log(sum(exp(logits))). `top` is the highest of them.
double log_sum_exp(std::span<const float> logits, double top);

// The `count` most likely tokens, in order (the lower token first when equal). Forbidden tokens are
// left out.
std::vector<TokenLogprob> top_logprobs(const LogitBlocks& row, double log_total, size_t count);

}  // namespace kvikk
