// POST /v1/completions: text or tokens go on as they are, without a chat template.

#include <cmath>

#include "serving/openai.h"
#include "text/json_text.h"

namespace kvikk {
namespace {

constexpr int64_t kLegacyLogprobsMax = 5;

// The text offset of a token is that of its characters in the answer, counted in code points.
size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) == 0x80 ? 0 : 1;
  return count;
}

class CompletionWriter : public AnswerWriter {
 public:
  CompletionWriter(const ApiContext& context, const Tokenizer& tokenizer,
                   const OpenAiFields& fields, size_t choices)
      : tokenizer_(tokenizer),
        id_("cmpl-" + context.id),
        model_(context.model),
        created_(context.created),
        per_prompt_(static_cast<size_t>(fields.choices)),
        logprobs_(fields.sampling.logprobs),
        include_usage_(fields.include_usage),
        offsets_(choices, 0) {}

  std::string begin() override { return {}; }

  std::string token(size_t choice, const TokenEvent& event) override {
    const bool has_logprob = logprobs_ && !std::isnan(event.logprob);
    if (event.text.empty() && !has_logprob) return {};
    Json logprobs;
    if (has_logprob) {
      logprobs = empty_logprobs();
      add_logprob(logprobs, event.token, event.logprob, event.top, offsets_[choice]);
    }
    return chunk(choice, event.text, nullptr, std::move(logprobs));
  }

  std::string choice_end(size_t choice, const Completion& completion) override {
    return chunk(choice, "", finish_reason_name(completion.reason), nullptr);
  }

  std::string end(std::span<const Completion> choices) override {
    std::string text;
    if (include_usage_) {
      Json json = head();
      json["choices"] = Json::array();
      json["usage"] = usage_json(choices, per_prompt_);
      text = server_event("", json);
    }
    return text + "data: [DONE]\n\n";
  }

  std::string failure(const ApiError& error) override {
    return server_event("", error_json(ApiStyle::kOpenAi, error));
  }

  Json whole(std::span<const Completion> choices) override {
    Json json = head();
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const Completion& c = choices[i];
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
      json["choices"].push_back({{"index", i},
                                 {"text", c.text},
                                 {"logprobs", std::move(logprobs)},
                                 {"finish_reason", finish_reason_name(c.reason)}});
    }
    json["usage"] = usage_json(choices, per_prompt_);
    return json;
  }

 private:
  Json head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_}};
  }

  static Json empty_logprobs() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }

  void add_logprob(Json& logprobs, TokenId token, float logprob, std::span<const TokenLogprob> top,
                   size_t& offset) const {
    const std::string text = token_text(tokenizer_, token);
    Json most_likely = Json::object();
    for (const TokenLogprob& t : top) most_likely[token_text(tokenizer_, t.token)] = t.logprob;
    logprobs["tokens"].push_back(text);
    logprobs["token_logprobs"].push_back(logprob);
    logprobs["top_logprobs"].push_back(std::move(most_likely));
    logprobs["text_offset"].push_back(offset);
    offset += characters(text);
  }

  std::string chunk(size_t choice, const std::string& text, const char* reason,
                    Json logprobs) const {
    Json json = head();
    json["choices"] = Json::array({{{"index", choice},
                                    {"text", text},
                                    {"logprobs", std::move(logprobs)},
                                    {"finish_reason", reason == nullptr ? Json() : Json(reason)}}});
    if (include_usage_) json["usage"] = nullptr;
    return server_event("", json);
  }

  const Tokenizer& tokenizer_;
  std::string id_;
  std::string model_;
  int64_t created_;
  size_t per_prompt_;
  bool logprobs_;
  bool include_usage_;
  std::vector<size_t> offsets_;  // [choices] of the next token in the answer's text
};

Status read_fields(Fields& fields, OpenAiFields& answer) {
  TRY(fields.sampling(answer.sampling, {"logprobs", "top_logprobs"}));
  int64_t logprobs = -1;
  TRY(fields.whole("logprobs", 0, kLegacyLogprobsMax, logprobs));
  answer.sampling.logprobs = logprobs >= 0;
  answer.sampling.top_logprobs = static_cast<int32_t>(std::max<int64_t>(logprobs, 0));
  answer.max_tokens = 16;  // as the API has it
  TRY(read_openai_fields(fields, "max_tokens", answer));
  TRY(fields.refuse("echo", "is not supported"));
  TRY(fields.refuse("suffix", "is not supported"));
  TRY(fields.refuse("best_of", "is not supported beyond 'n'", Json(answer.choices)));
  fields.ignore({"prompt"});
  return fields.finish();
}

bool is_token_list(const Json& json) {
  return json.is_array() && !json.empty() && json[0].is_number();
}

Result<std::vector<TokenId>> read_prompt(Engine& engine, const Json& prompt) {
  if (prompt.is_string()) return engine.encode(prompt.get_ref<const std::string&>());
  if (is_token_list(prompt)) return json_numbers(prompt, "'prompt'");
  return invalid_argument(
      "'prompt' must be a text, a list of tokens, or a list of texts or of lists of tokens");
}

// A prompt, or a list of them.
Result<std::vector<std::vector<TokenId>>> read_prompts(Engine& engine, const Json* json) {
  if (json == nullptr) return invalid_argument("'prompt' is missing");
  std::vector<std::vector<TokenId>> prompts;
  if (!json->is_array() || is_token_list(*json)) {
    TRY_ASSIGN(std::vector<TokenId> prompt, read_prompt(engine, *json));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (json->empty() || json->size() > static_cast<size_t>(kChoicesMax)) {
    return invalid_argument("'prompt' has " + std::to_string(json->size()) +
                            " entries; it must have 1 to " + std::to_string(kChoicesMax));
  }
  for (const Json& item : *json) {
    TRY_ASSIGN(std::vector<TokenId> prompt, read_prompt(engine, item));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

Result<ApiRequest> read_completion(const ApiContext& context, const Json& body,
                                   std::string& field) {
  Fields fields(body);
  OpenAiFields answer;
  answer.sampling = context.defaults;
  if (Status status = read_fields(fields, answer); !status.ok()) {
    field = fields.wrong_field();
    return status;
  }
  field = "prompt";
  TRY_ASSIGN(const auto prompts, read_prompts(context.engine, fields.find("prompt")));
  if (prompts.size() * static_cast<size_t>(answer.choices) > static_cast<size_t>(kChoicesMax)) {
    return invalid_argument("'prompt' has " + std::to_string(prompts.size()) +
                            " entries and 'n' is " + std::to_string(answer.choices) +
                            "; together at most " + std::to_string(kChoicesMax) +
                            " answers are given");
  }
  ApiRequest request;
  for (const std::vector<TokenId>& prompt : prompts) {
    std::vector<Request> choices = make_choices(context, prompt, answer);
    TRY(check_choices(context.engine, choices));
    for (Request& choice : choices) request.choices.push_back(std::move(choice));
  }
  field.clear();
  TRY_ASSIGN(const Tokenizer* tokenizer, context.engine.tokenizer());
  request.stream = answer.stream;
  request.writer =
      std::make_unique<CompletionWriter>(context, *tokenizer, answer, request.choices.size());
  return request;
}

}  // namespace kvikk
