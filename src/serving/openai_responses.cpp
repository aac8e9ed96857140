// POST /v1/responses: text in, text out; nothing is kept from one request to the next.

#include "serving/openai.h"

namespace kvikk {
namespace {

constexpr int64_t kAnswerTokensMax = int64_t{1} << 31;

Json usage_of(const Answer& completion) {
  return {{"input_tokens", completion.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", completion.cached_tokens}}},
          {"output_tokens", completion.tokens.size()},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", completion.prompt_tokens + completion.tokens.size()}};
}

// What the answer repeats of the request.
struct Echo {
  Json instructions;
  Json metadata = Json::object();
  Json max_output_tokens;
  float temperature = 0;
  float top_p = 0;
};

class ResponseWriter : public AnswerWriter {
 public:
  ResponseWriter(const ApiContext& context, Echo echo)
      : response_id_("resp_" + context.id),
        message_id_("msg_" + context.id),
        model_(context.model),
        created_(context.created),
        echo_(std::move(echo)) {}

  std::string begin() override {
    const Json response = response_json("in_progress", Json::array(), nullptr, nullptr);
    std::string text = event("response.created", {{"response", response}});
    text += event("response.in_progress", {{"response", response}});
    text += event("response.output_item.added",
                  {{"output_index", 0}, {"item", message("in_progress", Json::array())}});
    return text += event("response.content_part.added", part_event(""));
  }

  std::string token(size_t, const TokenEvent& token) override {
    if (token.text.empty()) return {};
    text_ += token.text;
    return event("response.output_text.delta",
                 place({{"delta", token.text}, {"logprobs", Json::array()}}));
  }

  std::string choice_end(size_t, const Answer& completion) override {
    std::string text =
        event("response.output_text.done", place({{"text", text_}, {"logprobs", Json::array()}}));
    text += event("response.content_part.done", part_event(text_));
    return text += event("response.output_item.done",
                         {{"output_index", 0},
                          {"item", message(status_of(completion), Json::array({part(text_)}))}});
  }

  std::string end(std::span<const Answer> choices) override {
    const std::string status = status_of(choices[0]);
    return event("response." + status, {{"response", finished(choices[0])}});
  }

  std::string failure(const ApiError& error) override {
    return event("error", {{"code", error.code}, {"message", error.message}, {"param", nullptr}});
  }

  Json whole(std::span<const Answer> choices) override { return finished(choices[0]); }

 private:
  static const char* status_of(const Answer& completion) {
    return completion.reason == FinishReason::kLength ? "incomplete" : "completed";
  }

  static Json part(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  Json place(Json fields) const {
    Json json = {{"item_id", message_id_}, {"output_index", 0}, {"content_index", 0}};
    json.update(fields);
    return json;
  }

  Json part_event(const std::string& text) const { return place({{"part", part(text)}}); }

  Json message(const char* status, Json content) const {
    return {{"id", message_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json finished(const Answer& completion) const {
    const char* status = status_of(completion);
    Json details;
    if (completion.reason == FinishReason::kLength) details = {{"reason", "max_output_tokens"}};
    Json response =
        response_json(status, Json::array({message(status, Json::array({part(completion.text)}))}),
                      std::move(details), usage_of(completion));
    say_guard(response, completion);
    return response;
  }

  Json response_json(const char* status, Json output, Json incomplete, Json usage) const {
    return {{"id", response_id_},
            {"object", "response"},
            {"created_at", created_},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", std::move(incomplete)},
            {"instructions", echo_.instructions},
            {"max_output_tokens", echo_.max_output_tokens},
            {"model", model_},
            {"output", std::move(output)},
            {"parallel_tool_calls", true},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"store", false},
            {"temperature", echo_.temperature},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "auto"},
            {"tools", Json::array()},
            {"top_p", echo_.top_p},
            {"truncation", "disabled"},
            {"usage", std::move(usage)},
            {"metadata", echo_.metadata}};
  }

  // Numbered in the order of the calls.
  std::string event(const std::string& type, const Json& fields) {
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    return server_event(type, json);
  }

  std::string response_id_;
  std::string message_id_;
  std::string model_;
  int64_t created_;
  Echo echo_;
  std::string text_;  // of a stream so far
  size_t sequence_ = 0;
};

Status read_fields(Fields& fields, AnswerFields& answer, Echo& echo) {
  TRY(fields.sampling(answer.sampling, {"logprobs", "top_logprobs"}));
  TRY(fields.flag("stream", answer.stream));
  TRY(read_guard(fields, answer));
  TRY(fields.whole("max_output_tokens", 1, kAnswerTokensMax, answer.max_tokens));
  std::string instructions;
  TRY(fields.text("instructions", instructions));
  for (const char* name : {"tools", "include", "reasoning", "prompt", "context_management"}) {
    TRY(fields.refuse(name, "is not supported yet"));
  }
  for (const char* name : {"previous_response_id", "conversation", "background"}) {
    TRY(fields.refuse(name, "is not supported: nothing is kept between requests"));
  }
  TRY(fields.refuse("text", "is not supported beyond text", {{"format", {{"type", "text"}}}}));
  TRY(fields.refuse("truncation", "is not supported: nothing is cut", "disabled"));
  TRY(fields.refuse("top_logprobs", "is not supported here", 0));
  const Json* tool_choice = fields.find("tool_choice");
  if (tool_choice != nullptr && *tool_choice != "auto" && *tool_choice != "none") {
    return fields.wrong("tool_choice", "is not supported yet");
  }
  if (!instructions.empty()) echo.instructions = instructions;
  if (answer.max_tokens > 0) echo.max_output_tokens = answer.max_tokens;
  if (const Json* metadata = fields.find("metadata")) {
    if (!metadata->is_object()) return fields.wrong("metadata", "must be an object");
    echo.metadata = *metadata;
  }
  echo.temperature = answer.sampling.temperature;
  echo.top_p = answer.sampling.top_p;
  fields.ignore({"model", "input", "user", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls",
                 "max_tool_calls", "stream_options"});
  return fields.finish();
}

Result<Json> read_input(Fields& fields, const Echo& echo, std::string& field) {
  const Json* input = fields.find("input");
  if (input == nullptr) {
    field = "input";
    return invalid_argument("'input' is missing");
  }
  Json messages = Json::array();
  if (echo.instructions.is_string()) {
    messages.push_back({{"role", "system"}, {"content", echo.instructions}});
  }
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  TRY_ASSIGN(const Json list, read_messages(input, "input", {"input_text", "output_text"}, field));
  messages.insert(messages.end(), list.begin(), list.end());
  return messages;
}

}  // namespace

Result<ApiRequest> read_response_request(const ApiContext& context, const Json& body,
                                         std::string& field) {
  Fields fields(body);
  AnswerFields answer;
  set_defaults(context, answer);
  Echo echo;
  if (Status status = read_fields(fields, answer, echo); !status.ok()) {
    field = fields.wrong_field();
    return status;
  }
  TRY_ASSIGN(Json messages, read_input(fields, echo, field));
  TRY_ASSIGN(const std::vector<TokenId> prompt,
             encode_messages(context.engine, std::move(messages), false));
  ApiRequest request;
  request.choices = make_choices(context, prompt, answer);
  TRY(check_choices(context.engine, request.choices));
  request.stream = answer.stream;
  request.guard = guard_of(answer);
  request.writer = std::make_unique<ResponseWriter>(context, std::move(echo));
  return request;
}

}  // namespace kvikk
