// POST /v1/chat/completions.

#include <cmath>

#include "serving/openai.h"

namespace kvikk {
namespace {

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(const ApiContext& context, const Tokenizer& tokenizer, const OpenAiFields& fields)
      : tokenizer_(tokenizer),
        id_("chatcmpl-" + context.id),
        model_(context.model),
        created_(context.created),
        choices_(static_cast<size_t>(fields.choices)),
        logprobs_(fields.sampling.logprobs),
        include_usage_(fields.include_usage) {}

  std::string begin() override {
    std::string text;
    for (size_t i = 0; i < choices_; ++i) {
      text += chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    return text;
  }

  std::string token(size_t choice, const TokenEvent& event) override {
    const bool has_logprob = logprobs_ && !std::isnan(event.logprob);
    if (event.text.empty() && !has_logprob) return {};
    Json logprobs;
    if (has_logprob) {
      logprobs = {{"content", Json::array({entry(event.token, event.logprob, event.top)})},
                  {"refusal", nullptr}};
    }
    return chunk(choice, {{"content", event.text}}, nullptr, std::move(logprobs));
  }

  std::string choice_end(size_t choice, const Completion& completion) override {
    return chunk(choice, Json::object(), finish_reason_name(completion.reason), nullptr);
  }

  std::string end(std::span<const Completion> choices) override {
    std::string text;
    if (include_usage_) {
      Json json = head("chat.completion.chunk");
      json["choices"] = Json::array();
      json["usage"] = usage_json(choices, choices.size());
      text = server_event("", json);
    }
    return text + "data: [DONE]\n\n";
  }

  std::string failure(const ApiError& error) override {
    return server_event("", error_json(ApiStyle::kOpenAi, error));
  }

  Json whole(std::span<const Completion> choices) override {
    Json json = head("chat.completion");
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const Completion& c = choices[i];
      Json logprobs;
      if (logprobs_) {
        logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
        for (size_t t = 0; t < c.tokens.size(); ++t) {
          const std::span<const TokenLogprob> top =
              c.top_logprobs.empty() ? std::span<const TokenLogprob>() : c.top_logprobs[t];
          logprobs["content"].push_back(entry(c.tokens[t], c.logprobs[t], top));
        }
      }
      json["choices"].push_back(
          {{"index", i},
           {"message", {{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}}},
           {"logprobs", std::move(logprobs)},
           {"finish_reason", finish_reason_name(c.reason)}});
    }
    json["usage"] = usage_json(choices, choices.size());
    return json;
  }

 private:
  Json head(const char* object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  }

  Json entry(TokenId token, float logprob, std::span<const TokenLogprob> top) const {
    Json json = logprob_json(tokenizer_, token, logprob);
    json["top_logprobs"] = Json::array();
    for (const TokenLogprob& t : top) {
      json["top_logprobs"].push_back(logprob_json(tokenizer_, t.token, t.logprob));
    }
    return json;
  }

  std::string chunk(size_t choice, Json delta, const char* reason, Json logprobs) const {
    Json json = head("chat.completion.chunk");
    json["choices"] = Json::array({{{"index", choice},
                                    {"delta", std::move(delta)},
                                    {"logprobs", std::move(logprobs)},
                                    {"finish_reason", reason == nullptr ? Json() : Json(reason)}}});
    if (include_usage_) json["usage"] = nullptr;
    return server_event("", json);
  }

  const Tokenizer& tokenizer_;
  std::string id_;
  std::string model_;
  int64_t created_;
  size_t choices_;
  bool logprobs_;
  bool include_usage_;
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
  answer.sampling = context.defaults;
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
  request.writer = std::make_unique<ChatWriter>(context, *tokenizer, answer);
  return request;
}

}  // namespace kvikk
