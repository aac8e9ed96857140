#pragma once
// What the OpenAI APIs have in common.

#include <span>
#include <string>
#include <vector>

#include "serving/answer_writer.h"
#include "serving/messages.h"

namespace kvikk {

// Reads stream, stream_options, n, max_tokens, stop and the sampling options, and the fields of
// either API that change nothing.
struct OpenAiFields : AnswerFields {
  bool include_usage = false;
};
Status read_openai_fields(Fields& fields, const char* max_tokens_name, OpenAiFields& answer);

// Of `choices`, `per_prompt` of which share a prompt.
Json usage_json(std::span<const Answer> choices, size_t per_prompt);

// The text of a token as JSON can hold it.
std::string token_text(const Tokenizer& tokenizer, TokenId token);
// {"token", "logprob", "bytes"}.
Json logprob_json(const Tokenizer& tokenizer, TokenId token, float logprob);

}  // namespace kvikk
