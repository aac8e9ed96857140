#include "serving/choices_writer.h"

#include <cmath>

namespace kvikk {

ChoicesWriter::ChoicesWriter(const Kind& kind, const ApiContext& context,
                             const Tokenizer& tokenizer, const OpenAiFields& fields, size_t choices)
    : tokenizer_(tokenizer),
      kind_(kind),
      id_(kind.id_prefix + context.id),
      model_(context.model),
      created_(context.created),
      per_prompt_(static_cast<size_t>(fields.choices)),
      logprobs_(fields.sampling.logprobs),
      include_usage_(fields.include_usage),
      offsets_(choices, 0) {}

std::string ChoicesWriter::token(size_t choice, const TokenEvent& event) {
  const bool has_logprob = logprobs_ && !std::isnan(event.logprob);
  if (event.text.empty() && !has_logprob) return {};
  Json logprobs;
  if (has_logprob) {
    logprobs = empty_logprobs();
    add_logprob(logprobs, event.token, event.logprob, event.top, offsets_[choice]);
  }
  return chunk(choice, chunk_fields(event.text), nullptr, std::move(logprobs));
}

std::string ChoicesWriter::choice_end(size_t choice, const Answer& completion) {
  Json fields = last_chunk_fields();
  say_guard(fields, completion);
  return chunk(choice, fields, finish_reason_name(completion.reason), nullptr);
}

std::string ChoicesWriter::end(std::span<const Answer> choices) {
  std::string text;
  if (include_usage_) {
    Json json = head(kind_.chunk_object);
    json["choices"] = Json::array();
    json["usage"] = usage_json(choices, per_prompt_);
    text = server_event("", json);
  }
  return text + "data: [DONE]\n\n";
}

std::string ChoicesWriter::failure(const ApiError& error) {
  return server_event("", error_json(ApiStyle::kOpenAi, error));
}

Json ChoicesWriter::whole(std::span<const Answer> choices) {
  Json json = head(kind_.object);
  json["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const Answer& c = choices[i];
    Json logprobs;
    if (logprobs_) {
      logprobs = empty_logprobs();
      size_t offset = 0;
      for (size_t t = 0; t < c.tokens.size(); ++t) {
        const std::span<const TokenLogprob> top =
            c.top_logprobs.empty() ? std::span<const TokenLogprob>() : c.top_logprobs[t];
        add_logprob(logprobs, c.tokens[t], c.logprobs[t], top, offset);
      }
    }
    json["choices"].push_back(
        choice_json(i, whole_fields(c.text), std::move(logprobs), finish_reason_name(c.reason)));
    say_guard(json["choices"].back(), c);
  }
  json["usage"] = usage_json(choices, per_prompt_);
  return json;
}

std::string ChoicesWriter::chunk(size_t choice, const Json& fields, const Json& reason,
                                 Json logprobs) const {
  Json json = head(kind_.chunk_object);
  json["choices"] = Json::array({choice_json(choice, fields, std::move(logprobs), reason)});
  if (include_usage_) json["usage"] = nullptr;
  return server_event("", json);
}

Json ChoicesWriter::head(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

Json ChoicesWriter::choice_json(size_t index, const Json& fields, Json logprobs,
                                const Json& reason) {
  Json json = {{"index", index}};
  json.update(fields);
  json["logprobs"] = std::move(logprobs);
  json["finish_reason"] = reason;
  return json;
}

}  // namespace kvikk
