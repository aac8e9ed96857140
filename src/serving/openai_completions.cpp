// POST /v1/completions: text or tokens go on as they are, without a chat template.

#include "serving/choices_writer.h"
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

class CompletionWriter : public ChoicesWriter {
 public:
  CompletionWriter(const ApiContext& context, const Tokenizer& tokenizer,
                   const OpenAiFields& fields, size_t choices)
      : ChoicesWriter({"cmpl-", "text_completion", "text_completion"}, context, tokenizer, fields,
                      choices) {}

  std::string begin() override { return {}; }

 private:
  Json chunk_fields(const std::string& text) const override { return {{"text", text}}; }
  Json last_chunk_fields() const override { return {{"text", ""}}; }
  Json whole_fields(const std::string& text) const override { return {{"text", text}}; }
  Json empty_logprobs() const override {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  void add_logprob(Json& logprobs, TokenId token, float logprob, std::span<const TokenLogprob> top,
                   size_t& offset) const override {
    const std::string text = token_text(tokenizer_, token);
    Json most_likely = Json::object();
    for (const TokenLogprob& t : top) most_likely[token_text(tokenizer_, t.token)] = t.logprob;
    logprobs["tokens"].push_back(text);
    logprobs["token_logprobs"].push_back(logprob);
    logprobs["top_logprobs"].push_back(std::move(most_likely));
    logprobs["text_offset"].push_back(offset);
    offset += characters(text);
  }
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
  set_defaults(context, answer);
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
  request.guard = guard_of(answer);
  request.writer =
      std::make_unique<CompletionWriter>(context, *tokenizer, answer, request.choices.size());
  return request;
}

}  // namespace kvikk
