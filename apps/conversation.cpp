#include "conversation.h"

#include <utility>

#include "engine/chat_prompt.h"
#include "model_source.h"
#include "shell.h"
#include "text/json_text.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFileBytesMax = size_t{64} << 20;

Json message(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

}  // namespace

Result<std::vector<TokenId>> Conversation::prompt(Engine& engine, const std::string& text) const {
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  TRY_ASSIGN(const bool has_template, has_chat_template(engine.file()));
  if (!has_template) {
    std::string all;
    for (const Message& m : messages_) all += m.text;
    return encode_text(*tokenizer, all + text, false);
  }
  TRY_ASSIGN(const Template* chat_template, engine.chat_template());
  Json messages = Json::array();
  if (!system_.empty()) messages.push_back(message("system", system_));
  for (const Message& m : messages_) {
    messages.push_back(message(m.from_user ? "user" : "assistant", m.text));
  }
  messages.push_back(message("user", text));
  return encode_conversation(*tokenizer, *chat_template, {{"messages", std::move(messages)}});
}

void Conversation::add(const std::string& text, const std::string& answer) {
  messages_.push_back({true, text});
  messages_.push_back({false, answer});
}

Status Conversation::save(const std::string& path) const {
  Json messages = Json::array();
  for (const Message& m : messages_) {
    messages.push_back(message(m.from_user ? "user" : "assistant", m.text));
  }
  const Json json = {{"system", system_}, {"messages", std::move(messages)}};
  TRY_ASSIGN(OutputFile file, OutputFile::open(path));
  TRY(file.write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  return file.close();
}

Status Conversation::load(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_file(path, kFileBytesMax));
  TRY_ASSIGN(const Json json, parse_json_object(text, path));
  if (json.contains("system") && !json["system"].is_string()) {
    return damaged(path + ": 'system' must be a text");
  }
  Conversation loaded(json.value("system", std::string()));
  if (!json.contains("messages") || !json["messages"].is_array()) {
    return damaged(path + ": 'messages' must be there and a list");
  }
  for (const Json& item : json["messages"]) {
    const bool right = item.is_object() && item.contains("role") && item.contains("content") &&
                       item["content"].is_string();
    const bool from_user = loaded.messages_.size() % 2 == 0;
    if (!right || item["role"] != (from_user ? "user" : "assistant")) {
      return damaged(
          path + ": message " + std::to_string(loaded.messages_.size()) +
          " must be {\"role\": .., \"content\": \"..\"}, 'user' and 'assistant' in turn");
    }
    loaded.messages_.push_back({from_user, item["content"].get<std::string>()});
  }
  if (loaded.messages_.size() % 2 != 0) {
    return damaged(path + ": the last message must be the assistant's");
  }
  *this = std::move(loaded);
  return ok_status();
}

}  // namespace kvikk
