#pragma once
// One answer: streamed to standard output while it comes, with its figures for people and scripts.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "kvikk/request.h"
#include "shell.h"

namespace kvikk {

struct AnswerOptions {
  int32_t max_tokens = 0;
  std::vector<std::string> stop;
  bool json = false;
  bool stats = false;

  template <class V>
  void visit(V&& v) {
    v(max_tokens, "max_tokens", 0, 1 << 27, "end the answer after N tokens; 0 = as it comes");
    v(stop, "stop", 1, static_cast<int>(kStopStringBytesMax),
      "end the answer before this text; can be repeated");
    v(json, "json", false, true, "one JSON document with figures instead of the text");
    v(stats, "stats", false, true, "figures of speed on standard error");
  }
};

// The request for `tokens` under these options.
Request make_request(std::vector<TokenId> tokens, const AnswerOptions& options,
                     const SamplingOptions& sampling);

// Computes the request; prints its text as it comes unless `quiet`, and a line end after it. An
// interrupt cancels it: what was computed until then is the completion. Errors: those of
// Engine::submit, of a broken model, of standard output.
Result<Completion> stream_answer(Shell& shell, Engine& engine, Request request, bool quiet);

// Tokens per second after the first one, which comes with the prompt; 0 where there is no other.
double decode_rate(const Completion& completion);
// "prompt 12 tokens (0 cached), 400 tok/s; answer 87 tokens, 180 tok/s".
std::string stats_text(const Completion& completion);
nlohmann::ordered_json answer_json(const Completion& completion);
// Adds "logprobs" and "top_logprobs" where they were asked for.
void add_logprobs(const Completion& completion, nlohmann::ordered_json& json);

}  // namespace kvikk
