#include "engine/sequence.h"

#include "base/check.h"

namespace kvikk {

namespace {

double seconds_between(Sequence::Clock::time_point from, Sequence::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kFailed:
      return "error";
  }
  CHECK(false);
  return "";
}

void Sequence::accept(const SampledToken& sampled) {
  if (completion.tokens.empty()) first_token = Clock::now();
  const bool is_end = tokenizer != nullptr && tokenizer->is_end_of_generation(sampled.token);
  if (is_end && !request.ignore_end_of_generation) {
    end(FinishReason::kStop);
    return;
  }
  tokens.push_back(sampled.token);
  completion.tokens.push_back(sampled.token);
  if (request.sampling.logprobs || request.sampling.top_logprobs > 0) {
    completion.logprobs.push_back(sampled.logprob);
  }
  if (request.sampling.top_logprobs > 0) completion.top_logprobs.push_back(sampled.top);
  std::string text;
  if (detokenizer.has_value()) text = stop_matcher.push(detokenizer->push(sampled.token));
  emit({sampled.token, text, sampled.logprob, sampled.top});
  if (stop_matcher.stopped()) {
    completion.stop = stop_matcher.stop();
    end(FinishReason::kStop);
  } else if (tokens.size() >= tokens_max) {
    end(FinishReason::kLength);
  }
}

void Sequence::emit(const Chunk& chunk) {
  completion.text += chunk.text;
  if (request.on_chunk) request.on_chunk(chunk);
}

void Sequence::end(FinishReason reason, std::string error) {
  if (finished) return;
  finished = true;
  if (detokenizer.has_value() && !stop_matcher.stopped()) {
    std::string rest = stop_matcher.push(detokenizer->finish());
    if (!stop_matcher.stopped()) rest += stop_matcher.finish();
    if (!rest.empty()) emit({tokens.back(), rest, NAN});
  }
  completion.reason = reason;
  completion.error = std::move(error);
  completion.prompt_tokens = prompt_tokens();
  const auto now = Clock::now();
  const bool began = started != Clock::time_point{};
  completion.timing.queued_seconds = seconds_between(submitted, began ? started : now);
  const bool answered = first_token != Clock::time_point{};
  if (began)
    completion.timing.prefill_seconds = seconds_between(started, answered ? first_token : now);
  if (answered) completion.timing.decode_seconds = seconds_between(first_token, now);
}

}  // namespace kvikk
