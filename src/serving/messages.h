#pragma once
// Conversations as requests write them, to tokens. Text is all that a message can hold yet.

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "serving/answer_writer.h"
#include "serving/fields.h"

namespace kvikk {

// The text of a message's content: a text, or a list of parts of a kind in `part_types`.
Result<std::string> read_content(const Json& content, const std::string& where,
                                 std::initializer_list<std::string_view> part_types,
                                 std::string& field);

// A list of {"role": .., "content": ..} as the chat template takes it; "developer" is "system".
// `part_types`: what a part of a content can be. Errors: kInvalidArgument; `field` is then the
// wrong one.
Result<Json> read_messages(const Json* list, std::string_view name,
                           std::initializer_list<std::string_view> part_types, std::string& field);

// The tokens that the model answers. `go_on`: the last message is the beginning of its answer.
Result<std::vector<TokenId>> encode_messages(Engine& engine, Json messages, bool go_on);

// What the chat template makes of them, up to where the answer begins.
Result<std::string> render_messages(Engine& engine, Json messages);

// What every API says about how to draw and when to end.
struct AnswerFields {
  SamplingOptions sampling;
  std::vector<std::string> stop;
  int64_t max_tokens = 0;  // 0: as many as the context holds
  int64_t choices = 1;
  bool stream = false;
  int64_t priority = 0;  // lower ones start earlier
  std::string repetition_guard;
};

// The answer's fields where a request says nothing.
void set_defaults(const ApiContext& context, AnswerFields& answer);

// "repetition_guard", after "stream".
Status read_guard(Fields& fields, AnswerFields& answer);
GuardPolicy guard_of(const AnswerFields& answer);

// The requests for one prompt: one for each choice, all of which draw differently.
std::vector<Request> make_choices(const ApiContext& context, const std::vector<TokenId>& prompt,
                                  const AnswerFields& answer);

// Engine::check of each, so that nothing is refused later.
Status check_choices(Engine& engine, const std::vector<Request>& choices);

}  // namespace kvikk
