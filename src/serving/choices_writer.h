#pragma once
// What answers of the chat and of the text completions have in common: choices with log-
// probabilities, as one object or as a stream of chunks that "[DONE]" ends.

#include <span>
#include <string>
#include <vector>

#include "serving/openai.h"

namespace kvikk {

class ChoicesWriter : public AnswerWriter {
 public:
  std::string token(size_t choice, const TokenEvent& event) override;
  std::string choice_end(size_t choice, const Answer& completion) override;
  std::string end(std::span<const Answer> choices) override;
  std::string failure(const ApiError& error) override;
  Json whole(std::span<const Answer> choices) override;

 protected:
  struct Kind {
    const char* id_prefix;
    const char* object;        // of a whole answer
    const char* chunk_object;  // of a piece
  };
  // choices: of all prompts together.
  ChoicesWriter(const Kind& kind, const ApiContext& context, const Tokenizer& tokenizer,
                const OpenAiFields& fields, size_t choices);

  // The fields of a choice with this text: in a chunk, in the last chunk, in a whole answer.
  virtual Json chunk_fields(const std::string& text) const = 0;
  virtual Json last_chunk_fields() const = 0;
  virtual Json whole_fields(const std::string& text) const = 0;
  virtual Json empty_logprobs() const = 0;
  // offset: where the token's text begins in the answer, in code points; moved on.
  virtual void add_logprob(Json& logprobs, TokenId token, float logprob,
                           std::span<const TokenLogprob> top, size_t& offset) const = 0;

  std::string chunk(size_t choice, const Json& fields, const Json& reason, Json logprobs) const;

  const Tokenizer& tokenizer_;

 private:
  Json head(const char* object) const;
  static Json choice_json(size_t index, const Json& fields, Json logprobs, const Json& reason);

  Kind kind_;
  std::string id_;
  std::string model_;
  int64_t created_;
  size_t per_prompt_;
  bool logprobs_;
  bool include_usage_;
  std::vector<size_t> offsets_;  // [choices] of the next token
};

}  // namespace kvikk
