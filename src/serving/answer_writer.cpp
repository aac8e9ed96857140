#include "serving/answer_writer.h"

#include "text/json_text.h"

namespace kvikk {
namespace {

const char* openai_type(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json error_json(ApiStyle style, const ApiError& error) {
  if (style == ApiStyle::kAnthropic) {
    return {{"type", "error"},
            {"error", {{"type", anthropic_type(error.status)}, {"message", error.message}}}};
  }
  return {{"error",
           {{"message", error.message},
            {"type", openai_type(error.status)},
            {"param", text_or_null(error.field)},
            {"code", text_or_null(error.code)}}}};
}

HttpAnswer error_answer(ApiStyle style, const ApiError& error) {
  HttpAnswer answer;
  answer.status = error.status;
  answer.body = json_line(error_json(style, error));
  if (error.status == 429 || error.status == 503) answer.headers.push_back({"Retry-After", "1"});
  return answer;
}

void say_guard(Json& json, const Answer& answer) {
  if (!answer.repeated && answer.retries == 0) return;
  json["repetition_guard"] = {{"stopped", answer.repeated}, {"retries", answer.retries}};
}

std::string server_event(std::string_view event, const Json& data) {
  std::string text;
  if (!event.empty()) text = "event: " + std::string(event) + "\n";
  return text + "data: " + json_line(data) + "\n";
}

}  // namespace kvikk
