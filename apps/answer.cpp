#include "answer.h"

#include <mutex>
#include <utility>

#include "sampling/random.h"
#include "text/json_text.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

double rate(size_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

double prefill_rate(const Completion& c) {
  return rate(c.prompt_tokens - c.cached_tokens, c.timing.prefill_seconds);
}

// What has come of an answer; also read by the thread that ends the program on Ctrl-C.
struct Partial {
  std::mutex mutex;
  Completion completion;

  void add(const Chunk& chunk) {
    std::lock_guard lock(mutex);
    completion.tokens.push_back(chunk.token);
    completion.text += chunk.text;
  }
};

}  // namespace

double decode_rate(const Completion& c) {
  return c.tokens.size() < 2 ? 0.0 : rate(c.tokens.size() - 1, c.timing.decode_seconds);
}

Request make_request(std::vector<TokenId> tokens, const AnswerOptions& options,
                     const SamplingOptions& sampling) {
  Request request;
  request.tokens = std::move(tokens);
  request.max_tokens = static_cast<size_t>(options.max_tokens);
  request.stop = options.stop;
  request.sampling = sampling;
  // Chosen here and not by the engine, so that also an answer that is cut short can name it.
  if (sampling.seed == kFreshSeed) request.sampling.seed = fresh_seed();
  return request;
}

Result<Completion> stream_answer(Shell& shell, Engine& engine, Request request, bool quiet) {
  Partial partial;
  partial.completion.reason = FinishReason::kCancelled;
  partial.completion.prompt_tokens = request.tokens.size();
  partial.completion.seed = request.sampling.seed;
  Status output;
  request.on_chunk = [&](const Chunk& chunk) {
    if (output.ok() && !quiet) output = shell.print_model_text(chunk.text);
    partial.add(chunk);
  };
  const auto stop = [&] { return shell.interrupts().raised() || !output.ok(); };
  Result<Completion> completion = [&] {
    const LastWords words(shell.interrupts(), [&] {
      std::lock_guard lock(partial.mutex);
      const std::string json = quiet ? json_line(answer_json(partial.completion)) : "\n";
      static_cast<void>(shell.print(json).ok());
    });
    return engine.complete(std::move(request), stop);
  }();
  const std::string& text = partial.completion.text;
  if (output.ok() && !quiet && !text.empty() && !text.ends_with('\n')) output = shell.print("\n");
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
  if (c.drafted_tokens > 0) {
    text += "; guessed " + count_text(c.drafted_tokens) + ", " + count_text(c.accepted_tokens) +
            " right";
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
      {"drafted_tokens", c.drafted_tokens},
      {"accepted_tokens", c.accepted_tokens},
      {"seed", c.seed},
      {"prefill_seconds", c.timing.prefill_seconds},
      {"decode_seconds", c.timing.decode_seconds},
      {"prefill_tokens_per_second", prefill_rate(c)},
      {"decode_tokens_per_second", decode_rate(c)},
  };
  add_logprobs(c, json);
  return json;
}

void add_logprobs(const Completion& c, nlohmann::ordered_json& json) {
  if (!c.logprobs.empty()) json["logprobs"] = c.logprobs;
  if (c.top_logprobs.empty()) return;
  nlohmann::ordered_json& all = json["top_logprobs"];
  for (const std::vector<TokenLogprob>& tops : c.top_logprobs) {
    all.push_back(nlohmann::ordered_json::array());
    for (const TokenLogprob& top : tops) {
      all.back().push_back({{"token", top.token}, {"logprob", top.logprob}});
    }
  }
}

}  // namespace kvikk
