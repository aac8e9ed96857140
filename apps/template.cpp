// kvikk template: renders conversations with a chat template, one JSON line each.

#include "text/template.h"
#include "engine/chat_prompt.h"
#include "model_source.h"
#include "models/model_file.h"
#include "text/json_text.h"
#include "verbs.h"

namespace kvikk {
namespace {

struct TemplateVerbOptions {
  std::string template_path;
  std::string in = "-";

  template <class V>
  void visit(V&& v) {
    v(template_path, "template", 0, 4096, "a file with the template, instead of a model's own");
    v(in, "in", 1, 4096, "file of JSON lines; - is standard input");
  }
};

struct Source {
  std::string text;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // the model's own
};

Result<Source> read_source(Shell& shell, const ModelOptions& model,
                           const TemplateVerbOptions& options) {
  Source source;
  if (!options.template_path.empty()) {
    TRY_ASSIGN(source.text, read_file(options.template_path, kTemplateSourceBytesMax));
    return source;
  }
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(const OpenedModel file, OpenedModel::open(path));
  TRY_ASSIGN(std::optional<std::string> text, file.chat_template());
  if (!text.has_value()) return unsupported(path + ": has no chat template");
  source.text = std::move(*text);
  TRY_ASSIGN(const std::optional<Tokenizer> tokenizer, file.tokenizer());
  if (tokenizer.has_value()) source.variables = token_variables(*tokenizer);
  return source;
}

// The rendered text, or what the template refused.
nlohmann::ordered_json render_line(const Result<Template>& chat_template,
                                   nlohmann::ordered_json variables) {
  if (!chat_template.ok()) return {{"error", chat_template.status().message()}};
  TemplateOptions options;
  const auto now = variables.find("now");
  if (now != variables.end() && now->is_string()) options.now = now->get<std::string>();
  const Result<std::string> text = chat_template->render(variables, options);
  if (!text.ok()) return {{"error", text.status().message()}};
  return {{"text", *text}};
}

}  // namespace

Status verb_template(Shell& shell, Arguments arguments) {
  ModelOptions model;
  TemplateVerbOptions options;
  Command command(
      {"template",
       "",
       "Renders conversations as the model sees them. A line has the template's variables:\n"
       "{\"messages\": [{\"role\": \"user\", \"content\": \"..\"}], \"add_generation_prompt\": "
       "true, "
       "\"tools\": ..}\n-> {\"text\": \"..\"} or {\"error\": \"..\"}; \"now\" sets its clock.",
       {"kvikk template -m smollm2-135m --in chats.jsonl",
        "kvikk template --template chat.jinja --in chats.jsonl"}});
  command.add(model);
  command.add_short("model", 'm');
  command.add(options);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();

  TRY_ASSIGN(Source source, read_source(shell, model, options));
  const Result<Template> chat_template = Template::parse(std::move(source.text));
  TRY_ASSIGN(LineReader lines, LineReader::open(shell, options.in));
  std::string text;
  for (;;) {
    TRY_ASSIGN(const bool more, lines.next(text));
    if (!more) return ok_status();
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    TRY_ASSIGN(const nlohmann::ordered_json line, parse_json_object(text, lines.where()));
    nlohmann::ordered_json variables = source.variables;
    variables.update(line);
    TRY(shell.print(json_line(render_line(chat_template, std::move(variables)))));
  }
}

}  // namespace kvikk
