#pragma once
// A row of logits with the maximum of every 64 of them. One pass over the row makes the maxima,
// finds the top and refuses NaN; afterwards "which logits are at least x" touches only the blocks
// that have one. The few tokens that a sampler looks at are found in a row of 150k that way, and
// nothing is ever fully sorted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/status.h"
#include "kvikk/token.h"

namespace kvikk {

class LogitBlocks {
 public:
  static constexpr size_t kBlockTokens = 64;
  static constexpr float kForbidden = -std::numeric_limits<float>::infinity();

  static size_t blocks_for(size_t vocabulary) {
    return (vocabulary + kBlockTokens - 1) / kBlockTokens;
  }

  // maxima: [blocks_for(logits.size())], written here and read as long as this object is used.
  // Errors: kDamaged when a logit is NaN or +infinity, or when all are -infinity; the message names
  // `position`.
  Status scan(std::span<const float> logits, float* maxima, uint64_t position);

  std::span<const float> logits() const { return logits_; }
  std::span<const float> maxima() const { return {maxima_, blocks_for(logits_.size())}; }
  float top() const { return top_; }
  TokenId best() const;  // the lowest token whose logit is top()

  // Calls visit(token, logit) for every finite logit with lowest <= logit < limit, in the order of
  // the tokens.
  template <class Visit>
  void for_each_between(double lowest, double limit, Visit&& visit) const {
    for (size_t block = 0; block < blocks_for(logits_.size()); ++block) {
      if (maxima_[block] < lowest || maxima_[block] == kForbidden) continue;
      const size_t begin = block * kBlockTokens;
      const size_t end = std::min(begin + kBlockTokens, logits_.size());
      for (size_t i = begin; i < end; ++i) {
        const float logit = logits_[i];
        if (logit >= lowest && logit < limit && logit != kForbidden) {
          visit(static_cast<TokenId>(i), logit);
        }
      }
    }
  }

 private:
  std::span<const float> logits_;  // [vocabulary]
  const float* maxima_ = nullptr;  // [blocks_for(vocabulary)]
  float top_ = kForbidden;
};

}  // namespace kvikk
