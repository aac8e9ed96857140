// POST /v1/chat/completions.

#include "serving/choices_writer.h"

namespace kvikk {
namespace {

class ChatWriter : public ChoicesWriter {
 public:
  ChatWriter(const ApiContext& context, const Tokenizer& tokenizer, const OpenAiFields& fields)
      : ChoicesWriter({"chatcmpl-", "chat.completion", "chat.completion.chunk"}, context, tokenizer,
                      fields, static_cast<size_t>(fields.choices)),
        choices_(static_cast<size_t>(fields.choices)) {}

  std::string begin() override {
    std::string text;
    for (size_t i = 0; i < choices_; ++i) {
      text += chunk(i, {{"delta", {{"role", "assistant"}, {"content", ""}}}}, nullptr, nullptr);
    }
    return text;
  }

 private:
  Json chunk_fields(const std::string& text) const override {
    return {{"delta", {{"content", text}}}};
  }
  Json last_chunk_fields() const override { return {{"delta", Json::object()}}; }
  Json whole_fields(const std::string& text) const override {
    return {{"message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}}};
  }
  Json empty_logprobs() const override {
    return {{"content", Json::array()}, {"refusal", nullptr}};
  }
  void add_logprob(Json& logprobs, TokenId token, float logprob, std::span<const TokenLogprob> top,
                   size_t&) const override {
    Json entry = logprob_json(tokenizer_, token, logprob);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& t : top) {
      entry["top_logprobs"].push_back(logprob_json(tokenizer_, t.token, t.logprob));
    }
    logprobs["content"].push_back(std::move(entry));
  }

  size_t choices_;
};

Status read_fields(Fields& fields, OpenAiFields& answer) {
  TRY(fields.sampling(answer.sampling));
  if (answer.sampling.top_logprobs > 0 && !answer.sampling.logprobs) {
    return fields.wrong("top_logprobs", "needs 'logprobs': true");
  }
  const bool old_name = fields.find("max_tokens") != nullptr;
  if (old_name && fields.find("max_completion_tokens") != nullptr) {
    return fields.wrong("max_tokens", "and 'max_completion_tokens' are the same: leave one out");
  }
  TRY(read_openai_fields(fields, old_name ? "max_tokens" : "max_completion_tokens", answer));
  TRY(fields.refuse("tools", "is not supported yet"));
  TRY(fields.refuse("tool_choice", "is not supported yet", "none"));
  TRY(fields.refuse("functions", "is not supported yet"));
  TRY(fields.refuse("function_call", "is not supported yet", "none"));
  TRY(fields.refuse("response_format", "is not supported yet: text only", {{"type", "text"}}));
  TRY(fields.refuse("modalities", "is not supported: text only", Json::array({"text"})));
  TRY(fields.refuse("audio", "is not supported: text only"));
  TRY(fields.refuse("prediction", "is not supported"));
  TRY(fields.refuse("web_search_options", "is not supported"));
  TRY(fields.refuse("reasoning_effort", "is not supported", "none"));
  TRY(fields.refuse("verbosity", "is not supported", "medium"));
  fields.ignore({"messages"});
  return fields.finish();
}

}  // namespace

Result<ApiRequest> read_chat_completion(const ApiContext& context, const Json& body,
                                        std::string& field) {
  Fields fields(body);
  OpenAiFields answer;
  set_defaults(context, answer);
  if (Status status = read_fields(fields, answer); !status.ok()) {
    field = fields.wrong_field();
    return status;
  }
  TRY_ASSIGN(Json messages, read_messages(fields.find("messages"), "messages", {"text"}, field));
  TRY_ASSIGN(const std::vector<TokenId> prompt,
             encode_messages(context.engine, std::move(messages), false));
  TRY_ASSIGN(const Tokenizer* tokenizer, context.engine.tokenizer());
  ApiRequest request;
  request.choices = make_choices(context, prompt, answer);
  TRY(check_choices(context.engine, request.choices));
  request.stream = answer.stream;
  request.guard = guard_of(answer);
  request.writer = std::make_unique<ChatWriter>(context, *tokenizer, answer);
  return request;
}

}  // namespace kvikk
