#pragma once
// Whoever guesses what comes next, so that several tokens can be checked in one step. A guess never
// changes what is said (sampling/verify.h), only how soon.
//
// To add a drafter: a file with its class and a line in registry.cpp.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvikk/token.h"
#include "sampling/sampler.h"

namespace kvikk {

// The longest draft: rows that one sequence can have in a step besides its own. The cache can take
// back as many tokens at any time.
inline constexpr size_t kDraftTokensMax = 32;

struct Proposal {
  std::vector<TokenId> tokens;
  // [tokens], from 0 to 1: how sure the drafter is of each, were all before it right.
  std::vector<float> confidence;

  void clear() {
    tokens.clear();
    confidence.clear();
  }
  void add(TokenId token, float sure) {
    tokens.push_back(token);
    confidence.push_back(sure);
  }
  // Adds what followed place `end` of `tokens`, until there are `most`. Past the newest token that
  // is the guess itself: text that repeats itself goes on.
  void copy(std::span<const TokenId> text, size_t end, size_t most, float sure) {
    for (size_t at = end + 1; tokens.size() < most; ++at) {
      add(at < text.size() ? text[at] : tokens[at - text.size()], sure);
    }
  }
  // Keeps the first `count` tokens.
  void shorten(size_t count) {
    if (count >= tokens.size()) return;
    tokens.resize(count);
    confidence.resize(count);
  }
};

// The drafter's memory of one sequence.
class SequenceDrafter {
 public:
  virtual ~SequenceDrafter() = default;

  // Adds up to `most` tokens that may follow `tokens`: prompt and answer so far, of which all but
  // the newest are those of the call before, in the same order. `most` <= kDraftTokensMax.
  virtual void propose(std::span<const TokenId> tokens, size_t most, Proposal& out) = 0;
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const char* name() const = 0;
  // `sampler` draws what the sequence says, and outlives the result.
  virtual std::unique_ptr<SequenceDrafter> begin(const Sampler& sampler) = 0;
  // Whether a guess takes so little time that it can be made first and judged then.
  virtual bool is_free() const { return true; }
};

}  // namespace kvikk
