#pragma once
// The definitions of docs/sampling.md written down as plainly as possible: float64, the standard
// library's exp and log, everything sorted, nothing shared with the code under test.

#include <span>
#include <string>
#include <vector>

#include "kvikk/options.h"

namespace kvikk::reference {

struct Token {
  TokenId id;
  double logit;
  double p;
};

// Every adjustment of single logits, in the chain's order. Stored logits are float32.
std::vector<float> adjust(const SamplingOptions& o, std::span<const float> raw,
                          std::span<const TokenId> history,
                          const std::vector<std::string>& vocabulary);

// The survivors of the filters, most likely first, with probabilities at temperature 1.
std::vector<Token> filter(const SamplingOptions& o, std::span<const float> logits, bool xtc_acts);

// The survivors' probabilities at o.temperature.
std::vector<double> probabilities(const std::vector<Token>& tokens, double temperature);

}  // namespace kvikk::reference
