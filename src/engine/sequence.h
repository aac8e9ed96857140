#pragma once
// A request on its way through the engine.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drafting/drafter.h"
#include "drafting/policy.h"
#include "engine/stop_matcher.h"
#include "kv/sequence_kv.h"
#include "kvikk/request.h"
#include "sampling/sampler.h"
#include "sampling/verify.h"
#include "text/detokenize_stream.h"
#include "text/tokenizer.h"

namespace kvikk {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  Sequence(Sampler s, SequenceKv k) : sampler(std::move(s)), kv(std::move(k)) {}

  RequestId id = 0;
  Request request;
  Sampler sampler;
  SequenceKv kv;
  size_t tokens_max = 0;                 // prompt and answer together
  std::vector<TokenId> tokens;           // prompt and answer so far
  size_t inserted_blocks = 0;            // of 64 tokens, known to the prefix tree
  const Tokenizer* tokenizer = nullptr;  // null: no text, tokens only
  std::optional<DetokenizeStream> detokenizer;
  StopMatcher stop_matcher;
  std::unique_ptr<SequenceDrafter> drafter;  // null: nobody guesses for it
  GuessOdds odds;
  size_t guessed_until = 0;  // tokens of the text and the last guess
  Proposal draft;            // what is checked in this step
  DraftCheck check;
  Completion completion;
  bool cancelled = false;
  bool finished = false;
  Clock::time_point submitted, started, first_token;

  size_t prompt_tokens() const { return request.tokens.size(); }
  // Tokens whose keys and values are still to be computed; 1 while decoding.
  size_t pending() const { return tokens.size() - kv.length(); }

  // Takes a drawn token: text, stop conditions, callbacks. Sets `finished` when it was the last.
  void accept(const SampledToken& sampled);
  void end(FinishReason reason, std::string error = {});

 private:
  void emit(const Chunk& chunk);
};

}  // namespace kvikk
