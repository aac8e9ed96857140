// POST /tokenize, /detokenize, /apply-template: what the model really sees.

#include "serving/answer_writer.h"
#include "serving/messages.h"
#include "text/json_text.h"

namespace kvikk {
namespace {

Status finish(Fields& fields, std::string& field) {
  fields.ignore({"model"});
  Status status = fields.finish();
  field = fields.wrong_field();
  return status;
}

}  // namespace

Result<Json> tokenize_text(const ApiContext& context, const Json& body, std::string& field) {
  Fields fields(body);
  const Json* messages = fields.find("messages");
  const Json* content = fields.find("content");
  const Json* prompt = fields.find("prompt");
  if (content == nullptr) content = prompt;
  bool begun = true;
  bool special = false;
  Status status = fields.flag("add_special", begun);
  if (status.ok()) status = fields.flag("parse_special", special);
  field = fields.wrong_field();
  TRY(status);
  TRY(finish(fields, field));
  std::vector<TokenId> tokens;
  if (messages != nullptr) {
    TRY_ASSIGN(Json read, read_messages(messages, "messages", {"text"}, field));
    TRY_ASSIGN(tokens, encode_messages(context.engine, std::move(read), false));
  } else if (content != nullptr && content->is_string()) {
    const auto& text = content->get_ref<const std::string&>();
    TRY_ASSIGN(const Tokenizer* tokenizer, context.engine.tokenizer());
    if (begun) {
      TRY_ASSIGN(tokens, context.engine.encode(text, special));
    } else {
      EncodeOptions options;
      options.parse_special = special;
      tokens = tokenizer->encode(text, options);
    }
  } else {
    field = "content";
    return invalid_argument("'content' must be a text (or 'messages' a list of messages)");
  }
  return Json{
      {"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", context.engine.context()}};
}

Result<Json> detokenize_tokens(const ApiContext& context, const Json& body, std::string& field) {
  Fields fields(body);
  const Json* tokens = fields.find("tokens");
  TRY(finish(fields, field));
  field = "tokens";
  if (tokens == nullptr) return invalid_argument("'tokens' is missing");
  TRY_ASSIGN(const std::vector<TokenId> list, json_numbers(*tokens, "'tokens'"));
  TRY_ASSIGN(const std::string text, context.engine.decode(list));
  return Json{{"content", text}};
}

Result<Json> apply_chat_template(const ApiContext& context, const Json& body, std::string& field) {
  Fields fields(body);
  const Json* messages = fields.find("messages");
  TRY(finish(fields, field));
  TRY_ASSIGN(Json read, read_messages(messages, "messages", {"text"}, field));
  TRY_ASSIGN(const std::string text, render_messages(context.engine, std::move(read)));
  return Json{{"prompt", text}};
}

}  // namespace kvikk
