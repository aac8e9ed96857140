#pragma once
// Notices an answer that goes round in circles: one token again and again, or the same few.
//
// A period counts as what it is: twelve equal tokens are one token twelve times, not four tokens
// three times, and text of white space, digits and lines (tables, rules, numbers) may repeat itself
// much longer.

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kvikk/token.h"

namespace kvikk {

class RepetitionGuard {
 public:
  static constexpr size_t kPeriodMax = 64;      // tokens
  static constexpr size_t kTokenRepeats = 4;    // of one token, in a row
  static constexpr size_t kPeriodRepeats = 4;   // of several tokens, and ..
  static constexpr size_t kPeriodTokens = 32;   // .. this many at least
  static constexpr size_t kFillerRepeats = 64;  // where all is filler

  using TokenBytes = std::function<std::string(TokenId)>;
  explicit RepetitionGuard(TokenBytes bytes) : bytes_(std::move(bytes)) {}

  // Takes the next token of the answer. True: with it the answer repeats itself.
  bool push(TokenId token);

 private:
  size_t repeats_allowed(size_t period) const;

  TokenBytes bytes_;
  std::vector<TokenId> last_;  // at most kPeriodMax tokens, then a ring
  std::vector<bool> filler_;   // [last_] white space, digits, -=_*#.~|
  size_t count_ = 0;           // tokens so far
  // [period]: how many tokens in a row, up to the last, equal the one that many tokens before.
  std::array<size_t, kPeriodMax + 1> equal_{};
};

}  // namespace kvikk
