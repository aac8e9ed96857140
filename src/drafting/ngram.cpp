#include "drafting/ngram.h"

#include <unordered_map>

#include "drafting/ngram_hash.h"

namespace kvikk {
namespace {

// Tokens that must agree, the longer one first.
constexpr size_t kLengths[] = {4, 2};
constexpr size_t kMatchMax = 32;  // how far back a match is measured

class NgramSequence : public SequenceDrafter {
 public:
  void propose(std::span<const TokenId> tokens, size_t most, Proposal& out) override {
    // An n-gram is known from the token after it on, so that the newest one finds an older place.
    for (; seen_ + 1 < tokens.size(); ++seen_) {
      for (const size_t length : kLengths) {
        if (seen_ + 1 < length) continue;
        ends_[ngram_hash(tokens.data() + seen_ + 1 - length, length)] = seen_;
      }
    }
    for (const size_t length : kLengths) {
      if (tokens.size() < length) continue;
      const auto found = ends_.find(ngram_hash(tokens.data() + tokens.size() - length, length));
      if (found == ends_.end()) continue;
      const size_t match = match_length(tokens, found->second);
      if (match < length) continue;  // two n-grams of one hash
      out.copy(tokens, found->second, most, trust_in_match(match));
      return;
    }
  }

 private:
  // How many tokens up to `end` are those at the end of the text.
  static size_t match_length(std::span<const TokenId> tokens, size_t end) {
    size_t match = 0;
    while (match < kMatchMax && match <= end &&
           tokens[end - match] == tokens[tokens.size() - 1 - match]) {
      ++match;
    }
    return match;
  }

  size_t seen_ = 0;
  std::unordered_map<uint64_t, size_t> ends_;  // an n-gram's hash: where it ended last
};

class NgramDrafter : public Drafter {
 public:
  const char* name() const override { return "ngram"; }
  std::unique_ptr<SequenceDrafter> begin(const Sampler&) override {
    return std::make_unique<NgramSequence>();
  }
};

}  // namespace

std::unique_ptr<Drafter> make_ngram_drafter() { return std::make_unique<NgramDrafter>(); }

}  // namespace kvikk
