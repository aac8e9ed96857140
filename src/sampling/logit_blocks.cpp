// The pass over a row of logits that everything else in the draw relies on.

#include "sampling/logit_blocks.h"

#include <string>

namespace kvikk {
namespace {

constexpr size_t kLanes = 8;
constexpr float kLargest = std::numeric_limits<float>::max();

// The maximum of logits[0, count), count >= 1; sets *damaged when one is NaN or +infinity (both
// fail the comparison with the largest float).
float block_maximum(const float* logits, size_t count, uint32_t* damaged) {
  float lane[kLanes];
  uint32_t bad[kLanes] = {};
  for (float& value : lane) value = LogitBlocks::kForbidden;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float x = logits[i + l];
      lane[l] = x > lane[l] ? x : lane[l];
      bad[l] |= x <= kLargest ? 0u : 1u;
    }
  }
  for (; i < count; ++i) {
    lane[0] = logits[i] > lane[0] ? logits[i] : lane[0];
    bad[0] |= logits[i] <= kLargest ? 0u : 1u;
  }
  for (size_t l = 0; l < kLanes; ++l) *damaged |= bad[l];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lane[l] = std::max(lane[l], lane[l + half]);
  }
  return lane[0];
}

Status damaged_logit(std::span<const float> logits, uint64_t position) {
  size_t token = 0;
  while (logits[token] <= kLargest) ++token;
  const bool nan = logits[token] != logits[token];
  return damaged("the model produced " + std::string(nan ? "NaN" : "+infinity") +
                 " as the logit of token " + std::to_string(token) + " at position " +
                 std::to_string(position) + ": its weights are damaged or its numbers overflow");
}

}  // namespace

Status LogitBlocks::scan(std::span<const float> logits, float* maxima, uint64_t position) {
  CHECK(!logits.empty());
  logits_ = logits;
  maxima_ = maxima;
  top_ = kForbidden;
  uint32_t damaged_bits = 0;
  for (size_t block = 0; block < blocks_for(logits.size()); ++block) {
    const size_t begin = block * kBlockTokens;
    const size_t count = std::min(kBlockTokens, logits.size() - begin);
    maxima[block] = block_maximum(logits.data() + begin, count, &damaged_bits);
    top_ = std::max(top_, maxima[block]);
  }
  if (damaged_bits != 0) return damaged_logit(logits, position);
  if (top_ == kForbidden) {
    return damaged("no token may follow at position " + std::to_string(position) +
                   ": every logit is -infinity");
  }
  return ok_status();
}

TokenId LogitBlocks::best() const {
  size_t token = 0;
  for (size_t block = 0; maxima_[block] != top_; ++block) token += kBlockTokens;
  while (logits_[token] != top_) ++token;
  return static_cast<TokenId>(token);
}

}  // namespace kvikk
