// Exact log-probabilities and the few most likely tokens of a row.

#include "sampling/logprobs.h"

#include <algorithm>

#include "sampling/numeric.h"

namespace kvikk {

double log_sum_exp(std::span<const float> logits, double top) {
  return top + log_positive(sum_exp(logits.data(), logits.size(), top));
}

std::vector<TokenLogprob> top_logprobs(const LogitBlocks& row, double log_total, size_t count) {
  std::vector<TokenLogprob> best;  // holds logits until the end
  if (count == 0) return best;
  best.reserve(count + 1);
  const auto logits = row.logits();
  const auto maxima = row.maxima();
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (best.size() == count && maxima[block] <= best.back().logprob) continue;
    const size_t begin = block * LogitBlocks::kBlockTokens;
    const size_t end = std::min(begin + LogitBlocks::kBlockTokens, logits.size());
    for (size_t i = begin; i < end; ++i) {
      if (logits[i] == LogitBlocks::kForbidden) continue;
      if (best.size() == count && logits[i] <= best.back().logprob) continue;
      const auto place =
          std::upper_bound(best.begin(), best.end(), logits[i],
                           [](float logit, const TokenLogprob& t) { return logit > t.logprob; });
      best.insert(place, {static_cast<TokenId>(i), logits[i]});
      if (best.size() > count) best.pop_back();
    }
  }
  for (TokenLogprob& t : best) t.logprob = static_cast<float>(t.logprob - log_total);
  return best;
}

}  // namespace kvikk
