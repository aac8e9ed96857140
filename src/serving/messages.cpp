#include "serving/messages.h"

#include <algorithm>

#include "engine/chat_prompt.h"
#include "text/option_entry.h"

namespace kvikk {
namespace {

std::string list_of(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += (text.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  return text;
}

Result<std::string> read_role(Fields& fields) {
  std::string role;
  TRY(fields.text("role", role));
  if (role == "developer") role = "system";
  for (const char* known : {"system", "user", "assistant"}) {
    if (role == known) return role;
  }
  if (role == "tool" || role == "function") {
    return fields.wrong("role", "is '" + role + "'; tools are not supported yet");
  }
  return fields.wrong("role", "is '" + short_text(role) +
                                  "'; it must be 'system', 'developer', 'user' or 'assistant'");
}

Result<Json> read_message(const Json& json, const std::string& where,
                          std::initializer_list<std::string_view> part_types, std::string& field) {
  field = where;
  if (!json.is_object()) {
    return invalid_argument("'" + where + "' must be an object with 'role' and 'content'");
  }
  Fields fields(json, where + ".");
  const auto fail = [&](const Status& status) {
    field = fields.wrong_field();
    return status;
  };
  const auto role = read_role(fields);
  if (!role.ok()) return fail(role.status());
  for (const char* tool : {"tool_calls", "function_call", "tool_call_id"}) {
    if (const Status s = fields.refuse(tool, "is not supported yet: no tools"); !s.ok()) {
      return fail(s);
    }
  }
  if (const Status s = fields.refuse("audio", "is not supported: text only"); !s.ok()) {
    return fail(s);
  }
  fields.ignore({"name", "refusal", "annotations", "id", "status", "type", "phase"});
  const Json* content = fields.find("content");
  if (const Status s = fields.finish(); !s.ok()) return fail(s);
  if (content == nullptr) return fail(fields.wrong("content", "is missing"));
  TRY_ASSIGN(std::string text, read_content(*content, where + ".content", part_types, field));
  field.clear();
  return Json{{"role", *role}, {"content", std::move(text)}};
}

// A client need not know where the model's file is.
Result<const Template*> template_of(Engine& engine) {
  Result<const Template*> found = engine.chat_template();
  if (found.status().code() != StatusCode::kNotFound) return found;
  return unsupported("the model has no chat template; /v1/completions takes a prompt as it is");
}

}  // namespace

Result<std::string> read_content(const Json& content, const std::string& where,
                                 std::initializer_list<std::string_view> part_types,
                                 std::string& field) {
  field = where;
  if (content.is_string()) return content.get<std::string>();
  const std::string expected = "must be a text or a list of parts of the type " +
                               list_of(part_types) + ", each with a 'text'";
  if (!content.is_array()) return invalid_argument("'" + where + "' " + expected);
  std::string text;
  for (const Json& part : content) {
    const bool typed = part.is_object() && part.contains("type") && part["type"].is_string();
    const std::string type = typed ? part["type"].get<std::string>() : std::string();
    if (std::find(part_types.begin(), part_types.end(), type) == part_types.end()) {
      const std::string found = typed ? "; '" + short_text(type) + "' is not supported" : "";
      return invalid_argument("'" + where + "' " + expected + found);
    }
    if (!part.contains("text") || !part["text"].is_string()) {
      return invalid_argument("'" + where + "' " + expected);
    }
    text += part["text"].get_ref<const std::string&>();
  }
  field.clear();
  return text;
}

Result<Json> read_messages(const Json* list, std::string_view name,
                           std::initializer_list<std::string_view> part_types, std::string& field) {
  field = name;
  if (list == nullptr || !list->is_array() || list->empty()) {
    return invalid_argument("'" + field + "' must be a list of at least one message");
  }
  Json messages = Json::array();
  for (const Json& item : *list) {
    const std::string where = std::string(name) + "[" + std::to_string(messages.size()) + "]";
    TRY_ASSIGN(Json message, read_message(item, where, part_types, field));
    messages.push_back(std::move(message));
  }
  field.clear();
  return messages;
}

Result<std::vector<TokenId>> encode_messages(Engine& engine, Json messages, bool go_on) {
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  TRY_ASSIGN(const Template* chat_template, template_of(engine));
  std::string begun;
  if (go_on) {
    begun = messages.back()["content"].get<std::string>();
    messages.erase(messages.size() - 1);
  }
  Json conversation = {{"messages", std::move(messages)}};
  TRY_ASSIGN(std::vector<TokenId> tokens,
             encode_conversation(*tokenizer, *chat_template, std::move(conversation)));
  if (!begun.empty()) {
    const std::vector<TokenId> more = tokenizer->encode(begun, {});
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

Result<std::string> render_messages(Engine& engine, Json messages) {
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  TRY_ASSIGN(const Template* chat_template, template_of(engine));
  Json variables = token_variables(*tokenizer);
  variables["messages"] = std::move(messages);
  variables["add_generation_prompt"] = true;
  return chat_template->render(variables);
}

std::vector<Request> make_choices(const ApiContext& context, const std::vector<TokenId>& prompt,
                                  const AnswerFields& answer) {
  std::vector<Request> choices;
  for (int64_t i = 0; i < answer.choices; ++i) {
    Request request;
    request.tokens = prompt;
    request.max_tokens = static_cast<size_t>(answer.max_tokens);
    request.sampling = answer.sampling;
    request.stop = answer.stop;
    request.client = context.client;
    request.priority = static_cast<int32_t>(answer.priority);
    request.deadline = context.deadline;
    const int64_t seed = answer.sampling.seed;
    if (seed != kFreshSeed) {  // the first choice is what n = 1 gives
      const uint64_t next = static_cast<uint64_t>(seed) + static_cast<uint64_t>(i);
      request.sampling.seed = static_cast<int64_t>(next & static_cast<uint64_t>(INT64_MAX));
    }
    choices.push_back(std::move(request));
  }
  return choices;
}

Status check_choices(Engine& engine, const std::vector<Request>& choices) {
  for (const Request& request : choices) TRY(engine.check(request));
  return ok_status();
}

void set_defaults(const ApiContext& context, AnswerFields& answer) {
  answer.sampling = context.defaults;
  answer.repetition_guard = context.repetition_guard;
}

Status read_guard(Fields& fields, AnswerFields& answer) {
  std::string& guard = answer.repetition_guard;
  TRY(fields.text("repetition_guard", guard));
  if (guard == kGuardOff || guard == kGuardStop || guard == kGuardRetry) return ok_status();
  return fields.wrong("repetition_guard", "must be 'off', 'stop' or 'retry'");
}

// Of a stream the client has seen what would have to be taken back.
GuardPolicy guard_of(const AnswerFields& answer) {
  const bool retries = answer.repetition_guard == kGuardRetry && !answer.stream;
  return {answer.repetition_guard != kGuardOff, retries ? kGuardRetriesMax : 0};
}

}  // namespace kvikk
