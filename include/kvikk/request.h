#pragma once
// What a caller asks of the engine, and what comes back.

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvikk/options.h"
#include "kvikk/token.h"

namespace kvikk {

using RequestId = uint64_t;

enum class FinishReason {
  kStop,       // an end-of-generation token or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // cancel()
  kDeadline,   // Request::deadline
  kFailed,     // Completion::error says why
};

const char* finish_reason_name(FinishReason reason);  // "stop", "length", "error" ...

// A piece of a streamed answer. `text` is whole UTF-8 characters and may be empty: a character can
// take several tokens, and text that could begin a stop string is held back until it is known.
struct Chunk {
  TokenId token;
  std::string_view text;
  float logprob;  // NaN unless SamplingOptions asks for it
  // [SamplingOptions::top_logprobs]; gone after the call.
  std::span<const TokenLogprob> top = {};
};

struct Timing {
  double queued_seconds = 0;   // from submit to the first step
  double prefill_seconds = 0;  // from there to the first token
  double decode_seconds = 0;   // from the first token to the last
};

struct Completion {
  std::vector<TokenId> tokens;  // without the end-of-generation token
  std::vector<float> logprobs;  // of the tokens, when asked for
  // [tokens][SamplingOptions::top_logprobs], the most likely first; of no token when it is 0.
  std::vector<std::vector<TokenLogprob>> top_logprobs;
  std::string text;  // without the stop string
  std::string stop;  // the stop string that ended it; empty: none did
  FinishReason reason = FinishReason::kStop;
  std::string error;  // when kFailed
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;    // of the prompt, found in the prefix cache
  size_t drafted_tokens = 0;   // guessed and checked (EngineOptions::spec)
  size_t accepted_tokens = 0;  // of them, found right
  int64_t seed = 0;            // that was drawn with: the request's, or the fresh one it got
  Timing timing;
};

struct Request {
  std::vector<TokenId> tokens;  // the prompt; at least one token
  size_t max_tokens = 0;        // 0: as many as the context holds
  SamplingOptions sampling;
  std::vector<std::string> stop;  // at most kStopStringsMax
  // Who asks: clients take turns, and do not find each other's prompts in the prefix cache.
  uint64_t client = 0;
  int32_t priority = 0;   // lower ones start earlier
  bool speculate = true;  // false: nobody guesses ahead, whatever EngineOptions::spec says
  // Ends the request when it has passed, with kDeadline; as made: never.
  std::chrono::steady_clock::time_point deadline{};
  bool ignore_end_of_generation = false;                 // for measurements
  std::function<void(const Chunk&)> on_chunk;            // on the engine's thread
  std::function<void(const Completion&)> on_completion;  // once, on the engine's thread
};

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 1024;

}  // namespace kvikk
