#pragma once
// What was said in 'kvikk chat', and how it becomes the prompt of the next answer.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "kvikk/token.h"

namespace kvikk {

class Conversation {
 public:
  explicit Conversation(std::string system) : system_(std::move(system)) {}

  // The prompt for an answer to everything so far and `text`. A model without a chat template
  // continues the texts as they are. Errors: those of the tokenizer and the template.
  Result<std::vector<TokenId>> prompt(Engine& engine, const std::string& text) const;

  void add(const std::string& text, const std::string& answer);
  void clear() { messages_.clear(); }
  size_t turns() const { return messages_.size() / 2; }
  const std::string& system() const { return system_; }
  void set_system(std::string system) { system_ = std::move(system); }

  // As JSON: {"system": "..", "messages": [{"role": .., "content": ..}, ..]}.
  Status save(const std::string& path) const;
  // Replaces this one; on an error it stays. Errors: kNotFound, kIo, kDamaged.
  Status load(const std::string& path);

 private:
  struct Message {
    bool from_user;
    std::string text;
  };

  std::string system_;
  std::vector<Message> messages_;
};

}  // namespace kvikk
