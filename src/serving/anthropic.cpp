// POST /v1/messages and /v1/messages/count_tokens.

#include "serving/answer_writer.h"
#include "serving/messages.h"

namespace kvikk {
namespace {

constexpr int64_t kAnswerTokensMax = int64_t{1} << 31;

Json stop_reason(const Answer& completion) {
  if (completion.reason == FinishReason::kLength) return "max_tokens";
  return completion.stop.empty() ? "end_turn" : "stop_sequence";
}

Json stop_sequence(const Answer& completion) {
  return completion.stop.empty() ? Json() : Json(completion.stop);
}

Json usage_of(const Answer& completion) {
  return {{"input_tokens", completion.prompt_tokens - completion.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", completion.cached_tokens},
          {"output_tokens", completion.tokens.size()}};
}

class MessageWriter : public AnswerWriter {
 public:
  MessageWriter(const ApiContext& context, size_t prompt_tokens)
      : id_("msg_" + context.id), model_(context.model), prompt_tokens_(prompt_tokens) {}

  std::string begin() override {
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    // What of it was cached is said at the end.
    message["usage"] = {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}};
    return event({{"type", "message_start"}, {"message", std::move(message)}}) +
           event({{"type", "content_block_start"},
                  {"index", 0},
                  {"content_block", {{"type", "text"}, {"text", ""}}}});
  }

  std::string token(size_t, const TokenEvent& token) override {
    if (token.text.empty()) return {};
    return event({{"type", "content_block_delta"},
                  {"index", 0},
                  {"delta", {{"type", "text_delta"}, {"text", token.text}}}});
  }

  std::string choice_end(size_t, const Answer& completion) override {
    Json delta = {
        {"type", "message_delta"},
        {"delta",
         {{"stop_reason", stop_reason(completion)}, {"stop_sequence", stop_sequence(completion)}}},
        {"usage", usage_of(completion)}};
    say_guard(delta, completion);
    return event({{"type", "content_block_stop"}, {"index", 0}}) + event(delta);
  }

  std::string end(std::span<const Answer>) override { return event({{"type", "message_stop"}}); }

  std::string failure(const ApiError& error) override {
    return event(error_json(ApiStyle::kAnthropic, error));
  }

  Json whole(std::span<const Answer> choices) override {
    const Answer& completion = choices[0];
    Json message = head();
    message["content"] = Json::array({{{"type", "text"}, {"text", completion.text}}});
    message["stop_reason"] = stop_reason(completion);
    message["stop_sequence"] = stop_sequence(completion);
    message["usage"] = usage_of(completion);
    say_guard(message, completion);
    return message;
  }

 private:
  Json head() const {
    return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model_}};
  }

  static std::string event(const Json& data) {
    return server_event(data["type"].get_ref<const std::string&>(), data);
  }

  std::string id_;
  std::string model_;
  size_t prompt_tokens_;
};

// What both endpoints read: the conversation as the chat template takes it. `go_on`: its last
// message is the beginning of the answer.
struct AnthropicChat {
  Json messages;
  bool go_on = false;
};

Status refuse_what_is_not_there(Fields& fields) {
  for (const char* name : {"tools", "tool_choice", "mcp_servers", "container", "context_management",
                           "output_config", "output_format"}) {
    TRY(fields.refuse(name, "is not supported yet"));
  }
  TRY(fields.refuse("thinking", "is not supported", {{"type", "disabled"}}));
  fields.ignore({"model", "metadata", "service_tier", "inference_geo", "messages", "system"});
  return ok_status();
}

Result<AnthropicChat> read_chat(Fields& fields, std::string& field) {
  AnthropicChat chat;
  chat.messages = Json::array();
  if (const Json* system = fields.find("system")) {
    TRY_ASSIGN(std::string text, read_content(*system, "system", {"text"}, field));
    if (!text.empty()) chat.messages.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  TRY_ASSIGN(Json messages, read_messages(fields.find("messages"), "messages", {"text"}, field));
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] == "system") {
      field = "messages[" + std::to_string(i) + "].role";
      return invalid_argument("'" + field +
                              "' must be 'user' or 'assistant'; 'system' is a field "
                              "of the request");
    }
    chat.messages.push_back(std::move(messages[i]));
  }
  chat.go_on = chat.messages.back()["role"] == "assistant";
  return chat;
}

Status read_fields(Fields& fields, AnswerFields& answer) {
  TRY(fields.sampling(answer.sampling, {"logprobs", "top_logprobs"}));
  TRY(fields.flag("stream", answer.stream));
  TRY(read_guard(fields, answer));
  if (fields.find("max_tokens") == nullptr) return fields.wrong("max_tokens", "is missing");
  TRY(fields.whole("max_tokens", 1, kAnswerTokensMax, answer.max_tokens));
  TRY(fields.texts("stop_sequences", kStopStringsMax, kStopStringBytesMax, answer.stop));
  TRY(refuse_what_is_not_there(fields));
  return fields.finish();
}

}  // namespace

Result<ApiRequest> read_message_request(const ApiContext& context, const Json& body,
                                        std::string& field) {
  Fields fields(body);
  AnswerFields answer;
  set_defaults(context, answer);
  if (Status status = read_fields(fields, answer); !status.ok()) {
    field = fields.wrong_field();
    return status;
  }
  TRY_ASSIGN(AnthropicChat chat, read_chat(fields, field));
  TRY_ASSIGN(const std::vector<TokenId> prompt,
             encode_messages(context.engine, std::move(chat.messages), chat.go_on));
  ApiRequest request;
  request.choices = make_choices(context, prompt, answer);
  TRY(check_choices(context.engine, request.choices));
  request.stream = answer.stream;
  request.guard = guard_of(answer);
  request.writer = std::make_unique<MessageWriter>(context, prompt.size());
  return request;
}

Result<Json> count_message_tokens(const ApiContext& context, const Json& body, std::string& field) {
  Fields fields(body);
  Status status = refuse_what_is_not_there(fields);
  if (status.ok()) status = fields.finish();
  if (!status.ok()) {
    field = fields.wrong_field();
    return status;
  }
  TRY_ASSIGN(AnthropicChat chat, read_chat(fields, field));
  TRY_ASSIGN(const std::vector<TokenId> prompt,
             encode_messages(context.engine, std::move(chat.messages), chat.go_on));
  return Json{{"input_tokens", prompt.size()}};
}

}  // namespace kvikk
