#pragma once
// The only place that accepts a draft.
//
// A draw is a pure function of the request's options, the logits, the tokens before and the
// position (sampler.h). So a drafted token is accepted when it is the very token that plain
// decoding draws there, greedy or sampled, and what is said is the same byte for byte.

#include <cstddef>
#include <span>

#include "kvikk/token.h"

namespace kvikk {

// Walks along a drafted chain while the logits of its rows come, the first row first. Row 0 is the
// newest token of the text; row j + 1 is draft token j and means something only while all draft
// tokens up to it are right.
class DraftCheck {
 public:
  void begin(std::span<const TokenId> draft) {
    draft_ = draft;
    accepted_ = 0;
    ended_ = false;
  }
  // Whether the coming row stands for the text as it is.
  bool wants_row() const { return !ended_; }
  // What was drawn at the coming row.
  void take(TokenId drawn) {
    const bool is_right = accepted_ < draft_.size() && draft_[accepted_] == drawn;
    if (is_right) {
      ++accepted_;
    } else {
      ended_ = true;
    }
  }
  // The text ends here, whatever the draft says.
  void end() { ended_ = true; }

  size_t accepted() const { return accepted_; }

 private:
  std::span<const TokenId> draft_;
  size_t accepted_ = 0;
  bool ended_ = true;
};

}  // namespace kvikk
