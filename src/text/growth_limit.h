#pragma once
// How many times longer the steps of a pipeline can make a text. Each step multiplies what the ones
// before it made, so a few lines of a hostile file could turn a word into gigabytes.

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/status.h"

namespace kvikk {

class GrowthLimit {
 public:
  explicit constexpr GrowthLimit(size_t times_max) : times_max_(times_max) {}

  // One more step, which makes a text up to `times` (>= 1) times as long. kUnsupported where all
  // together pass the limit.
  Status add(size_t times) {
    if (times > times_max_ / times_) {
      return unsupported("steps that can make a text more than " + std::to_string(times_max_) +
                         " times as long");
    }
    times_ *= times;
    return ok_status();
  }

  // A step that writes `replacement_bytes` for every match, which has at least `match_bytes`.
  Status add_replacement(size_t match_bytes, size_t replacement_bytes) {
    if (match_bytes == 0) return add(replacement_bytes + 1);  // before every byte as well
    return add(std::max<size_t>((replacement_bytes + match_bytes - 1) / match_bytes, 1));
  }

 private:
  size_t times_max_;
  size_t times_ = 1;
};

}  // namespace kvikk
