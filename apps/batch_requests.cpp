#include "batch_requests.h"

#include <utility>

#include "answer.h"
#include "engine/chat_prompt.h"
#include "text/json_text.h"
#include "text/option_entry.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

// What a line may say beside the sampling options.
struct LineOptions {
  int32_t max_tokens = 0;
  std::vector<std::string> stop;
  bool ignore_end = false;

  template <class V>
  void visit(V&& v) {
    v(max_tokens, "max_tokens", 0, 1 << 27, "");
    v(stop, "stop", 1, static_cast<int>(kStopStringBytesMax), "");
    v(ignore_end, "ignore_eos", false, true, "");
  }
};

bool is_prompt_key(const std::string& key) {
  return key == "tokens" || key == "prompt" || key == "messages" || key == "tools";
}

Status check_messages(const Json& messages) {
  bool right = messages.is_array() && !messages.empty();
  if (right) {
    for (const Json& message : messages) {
      right =
          right && message.is_object() && message.contains("role") && message["role"].is_string();
    }
  }
  if (right) return ok_status();
  return invalid_argument("'messages' must be a list of objects, each with a 'role'");
}

Result<std::vector<TokenId>> encode_messages(Engine& engine, const Json& line) {
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  TRY_ASSIGN(const Template* chat_template, engine.chat_template());
  TRY(check_messages(line.at("messages")));
  Json conversation = {{"messages", line.at("messages")}};
  if (line.contains("tools")) conversation["tools"] = line.at("tools");
  return encode_conversation(*tokenizer, *chat_template, std::move(conversation));
}

Result<std::vector<TokenId>> encode_line(Engine& engine, const Json& line,
                                         const std::string& where) {
  const int ways = static_cast<int>(line.contains("tokens")) +
                   static_cast<int>(line.contains("prompt")) +
                   static_cast<int>(line.contains("messages"));
  if (ways != 1) {
    return invalid_argument("needs exactly one of 'tokens', 'prompt' and 'messages'");
  }
  if (line.contains("tokens")) return json_numbers(line.at("tokens"), where + ": 'tokens'");
  if (line.contains("messages")) return encode_messages(engine, line);
  if (!line.at("prompt").is_string()) return invalid_argument("'prompt' must be a text");
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  return encode_text(*tokenizer, line.at("prompt").get_ref<const std::string&>(), false);
}

Status apply_options(const Json& line, Request& request) {
  LineOptions options;
  options.max_tokens = static_cast<int32_t>(request.max_tokens);
  options.stop = request.stop;
  std::vector<OptionEntry> entries;
  options.visit(OptionBinder(entries));
  request.sampling.visit(OptionBinder(entries));
  for (const auto& [key, value] : line.items()) {
    if (key == "id" || is_prompt_key(key)) continue;
    const OptionEntry* entry = find_option(entries, key);
    if (entry == nullptr) return invalid_argument("there is no option '" + key + "'");
    TRY(entry->set_json(value, "'" + key + "'"));
  }
  request.max_tokens = static_cast<size_t>(options.max_tokens);
  request.stop = options.stop;
  request.ignore_end_of_generation = options.ignore_end;
  return ok_status();
}

Status read_request(Engine& engine, const Json& line, const std::string& where, Request& request) {
  TRY(apply_options(line, request));
  TRY_ASSIGN(request.tokens, encode_line(engine, line, where));
  // Now, not when its turn comes and others have been answered.
  return engine.check(request);
}

}  // namespace

Result<std::vector<BatchRequest>> read_batch(Shell& shell, const std::string& path, Engine& engine,
                                             const Request& defaults) {
  TRY_ASSIGN(LineReader lines, LineReader::open(shell, path));
  std::vector<BatchRequest> batch;
  std::string text;
  for (;;) {
    TRY_ASSIGN(const bool more, lines.next(text));
    if (!more) return batch;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    BatchRequest entry;
    entry.where = lines.where();
    if (batch.size() >= kBatchRequestsMax) {
      return exhausted(entry.where + ": more than " + std::to_string(kBatchRequestsMax) +
                       " requests");
    }
    TRY_ASSIGN(const Json line, parse_json_object(text, entry.where));
    entry.id = line.contains("id") ? line.at("id") : Json(batch.size());
    if (entry.id.is_structured()) return damaged(entry.where + ": 'id' must be a text or a number");
    entry.request = defaults;
    const Status status = read_request(engine, line, entry.where, entry.request);
    if (!status.ok()) {
      const bool names_line = status.message().starts_with(entry.where);
      return Status(StatusCode::kDamaged,
                    names_line ? status.message() : entry.where + ": " + status.message());
    }
    batch.push_back(std::move(entry));
    TRY(shell.go_on());
  }
}

Json batch_answer(const BatchRequest& request, const Completion& completion) {
  Json json = {{"id", request.id},
               {"tokens", completion.tokens},
               {"text", completion.text},
               {"finish_reason", finish_reason_name(completion.reason)}};
  if (completion.reason == FinishReason::kFailed) json["error"] = completion.error;
  if (request.request.sampling.seed == kFreshSeed) json["seed"] = completion.seed;
  add_logprobs(completion, json);
  return json;
}

}  // namespace kvikk
