#include "answer.h"

#include <cmath>
#include <utility>

#include "numbers.h"

namespace kvikk {
namespace {

double rate(size_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// The first token of an answer comes with the prompt.
double decode_rate(const Completion& c) {
  return c.tokens.size() < 2 ? 0.0 : rate(c.tokens.size() - 1, c.timing.decode_seconds);
}

double prefill_rate(const Completion& c) {
  return rate(c.prompt_tokens - c.cached_tokens, c.timing.prefill_seconds);
}

}  // namespace

Request make_request(std::vector<TokenId> tokens, const AnswerOptions& options,
                     const SamplingOptions& sampling) {
  Request request;
  request.tokens = std::move(tokens);
  request.max_tokens = static_cast<size_t>(options.max_tokens);
  request.stop = options.stop;
  request.sampling = sampling;
  return request;
}

Result<Completion> stream_answer(Shell& shell, Engine& engine, Request request, bool quiet) {
  Status output;
  bool ends_in_line_end = true;
  if (!quiet) {
    request.on_chunk = [&](const Chunk& chunk) {
      if (!output.ok() || chunk.text.empty()) return;
      output = shell.print_model_text(chunk.text);
      ends_in_line_end = chunk.text.back() == '\n';
    };
  }
  Result<Completion> completion = engine.complete(
      std::move(request), [&] { return shell.interrupts().raised() || !output.ok(); });
  if (output.ok() && !ends_in_line_end) output = shell.print("\n");
  TRY(output);
  return completion;
}

std::string stats_text(const Completion& c) {
  std::string text = "prompt " + count_text(c.prompt_tokens) + " tokens";
  if (c.cached_tokens > 0) text += " (" + count_text(c.cached_tokens) + " cached)";
  text += " in " + seconds_text(c.timing.prefill_seconds) + ", " + rate_text(prefill_rate(c)) +
          " tok/s; answer " + count_text(c.tokens.size()) + " tokens";
  if (c.tokens.size() > 1) {
    text += " in " + seconds_text(c.timing.decode_seconds) + ", " + rate_text(decode_rate(c)) +
            " tok/s";
  }
  return text;
}

nlohmann::ordered_json answer_json(const Completion& c) {
  nlohmann::ordered_json json = {
      {"text", c.text},
      {"finish_reason", finish_reason_name(c.reason)},
      {"tokens", c.tokens},
      {"prompt_tokens", c.prompt_tokens},
      {"cached_tokens", c.cached_tokens},
      {"completion_tokens", c.tokens.size()},
      {"prefill_seconds", c.timing.prefill_seconds},
      {"decode_seconds", c.timing.decode_seconds},
      {"prefill_tokens_per_second", prefill_rate(c)},
      {"decode_tokens_per_second", decode_rate(c)},
  };
  if (!c.logprobs.empty()) json["logprobs"] = c.logprobs;
  return json;
}

}  // namespace kvikk
