#include "serving/openai.h"

#include "text/utf8.h"

namespace kvikk {
namespace {

constexpr int64_t kAnswerTokensMax = int64_t{1} << 31;

Status read_stream_options(Fields& fields, OpenAiFields& answer) {
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return ok_status();
  if (!answer.stream) return fields.wrong("stream_options", "needs 'stream': true");
  if (!options->is_object()) return fields.wrong("stream_options", "must be an object");
  Fields more(*options, "stream_options.");
  more.ignore({"include_obfuscation"});
  Status status = more.flag("include_usage", answer.include_usage);
  if (status.ok()) status = more.finish();
  return fields.of_inner(more, std::move(status));
}

}  // namespace

Status read_openai_fields(Fields& fields, const char* max_tokens_name, OpenAiFields& answer) {
  TRY(fields.flag("stream", answer.stream));
  TRY(read_guard(fields, answer));
  TRY(read_stream_options(fields, answer));
  TRY(fields.whole("n", 1, kChoicesMax, answer.choices));
  TRY(fields.whole(max_tokens_name, 1, kAnswerTokensMax, answer.max_tokens));
  TRY(fields.whole("priority", -100, 100, answer.priority));
  TRY(fields.texts("stop", kStopStringsMax, kStopStringBytesMax, answer.stop));
  fields.ignore({"model", "user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls"});
  return ok_status();
}

Json usage_json(std::span<const Answer> choices, size_t per_prompt) {
  size_t prompt = 0;
  size_t cached = 0;
  size_t answered = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    answered += choices[i].tokens.size();
    if (i % per_prompt != 0) continue;
    prompt += choices[i].prompt_tokens;
    cached += choices[i].cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", answered},
          {"total_tokens", prompt + answered},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::string token_text(const Tokenizer& tokenizer, TokenId token) {
  return replace_invalid_utf8(tokenizer.token_bytes(token));
}

Json logprob_json(const Tokenizer& tokenizer, TokenId token, float logprob) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(token)) bytes.push_back(static_cast<unsigned char>(c));
  return {
      {"token", token_text(tokenizer, token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace kvikk
