#include "drafting/past_text.h"

#include <algorithm>

#include "drafting/ngram_hash.h"

namespace kvikk {
namespace {

constexpr TokenId kBreak = -1;                             // no token: a match ends here
constexpr size_t kLengths[] = {12, 4};                     // of the n-grams, the longer one first
constexpr size_t kMatchMax = 48;                           // how far back a match is measured
constexpr size_t kEndsPerToken = 2 * std::size(kLengths);  // then those that are lost are removed

}  // namespace

void PastText::push(TokenId token) {
  if (tokens_.size() < tokens_max_) {
    tokens_.push_back(token);
  } else {
    tokens_[next_ % tokens_max_] = token;
  }
  ++next_;
}

void PastText::add(uint64_t client, std::span<const TokenId> answer) {
  if (tokens_max_ == 0) return;
  if (answer.size() >= tokens_max_) answer = answer.last(tokens_max_ - 1);
  push(kBreak);
  for (size_t i = 0; i < answer.size(); ++i) {
    push(answer[i]);
    for (const size_t length : kLengths) {
      if (i + 1 < length) continue;
      ends_[ngram_hash(answer.data() + i + 1 - length, length, client)] = next_ - 1;
    }
  }
  if (ends_.size() > kEndsPerToken * tokens_max_) forget_lost_ends();
}

void PastText::forget_lost_ends() {
  std::erase_if(ends_, [&](const auto& end) { return !is_kept(end.second); });
}

// How many tokens up to `place` are those at the end of the text.
size_t PastText::match_length(uint64_t place, std::span<const TokenId> text) const {
  size_t match = 0;
  while (match < std::min(kMatchMax, text.size()) && match <= place && is_kept(place - match) &&
         at(place - match) == text[text.size() - 1 - match]) {
    ++match;
  }
  return match;
}

void PastText::propose(uint64_t client, std::span<const TokenId> text, size_t most,
                       Proposal& out) const {
  if (ends_.empty()) return;
  for (const size_t length : kLengths) {
    if (text.size() < length) continue;
    const auto found = ends_.find(ngram_hash(text.data() + text.size() - length, length, client));
    if (found == ends_.end() || !is_kept(found->second)) continue;
    const size_t match = match_length(found->second, text);
    if (match < length) continue;  // overwritten in part, or two n-grams of one hash
    for (uint64_t place = found->second + 1; place < next_ && out.tokens.size() < most; ++place) {
      if (at(place) == kBreak) break;
      out.add(at(place), trust_in_match(match));
    }
    if (!out.tokens.empty()) return;
  }
}

}  // namespace kvikk
