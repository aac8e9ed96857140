#pragma once
// What was said before: the newest answers, so many tokens of them. Where the end of a text stood
// in one of them, what followed there may follow again; an agent that is asked the same thing every
// minute says mostly the same.
//
// A client's text is found by the same client only, as in the prefix cache: a guess that is right
// shows in the time an answer takes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "drafting/drafter.h"

namespace kvikk {

class PastText {
 public:
  // tokens_max: that are remembered; 0: nothing is.
  explicit PastText(size_t tokens_max) : tokens_max_(tokens_max) {}

  // An answer that is complete. Forgets the oldest tokens where there is no room.
  void add(uint64_t client, std::span<const TokenId> answer);
  // Adds up to `most` tokens that followed the end of `text` in an answer to `client`.
  void propose(uint64_t client, std::span<const TokenId> text, size_t most, Proposal& out) const;

 private:
  TokenId at(uint64_t place) const { return tokens_[place % tokens_max_]; }
  bool is_kept(uint64_t place) const { return place < next_ && next_ - place <= tokens_max_; }
  void push(TokenId token);
  void forget_lost_ends();
  size_t match_length(uint64_t place, std::span<const TokenId> text) const;

  size_t tokens_max_;
  std::vector<TokenId> tokens_;  // a ring: place p is at p % tokens_max_; kBreak between answers
  uint64_t next_ = 0;            // place of the next token
  // A client's n-gram, hashed: the place where it ended last.
  std::unordered_map<uint64_t, uint64_t> ends_;
};

}  // namespace kvikk
