#pragma once
// What guessing ahead is worth: the same greedy answers with and without, in turns, through the
// scheduler as requests go.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "engine/engine.h"

namespace kvikk {

struct SpecResult {
  std::string work;            // "copy": text that repeats its prompt; "prose": text that does not
  size_t tokens = 0;           // of an answer
  double plain = 0, with = 0;  // tokens per second of decoding, medians
  double ratio = 0, min = 0, max = 0;  // of the pairs
  size_t drafted = 0, accepted = 0;    // tokens, of one answer
};

// Tokens that the cache must hold for answers of `tokens`.
size_t spec_context(size_t tokens);

// `engine` has a drafter. Hands over each result. Errors: those of the tokenizer and of requests,
// kFailed where an answer with guesses is another one, what `go_on` or `take` return.
Status measure_spec(Engine& engine, size_t tokens, int32_t repeat,
                    const std::function<Status()>& go_on,
                    const std::function<Status(SpecResult)>& take);

}  // namespace kvikk
