// kvikk run: one answer on standard output.

#include <algorithm>

#include "answer.h"
#include "engine/chat_prompt.h"
#include "engine/saved_cache.h"
#include "model_source.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "text/utf8.h"
#include "verbs.h"

namespace kvikk {
namespace {

constexpr size_t kPromptBytesMax = size_t{64} << 20;
// Without a chat template a model seldom ends by itself.
constexpr int32_t kPlainTokens = 512;

struct RunOptions {
  std::string system;
  bool raw = false;
  bool special = false;
  std::string save_kv;
  std::string load_kv;

  template <class V>
  void visit(V&& v) {
    v(system, "system", 0, 1 << 20, "instructions that come before the prompt");
    v(raw, "raw", false, true, "continue the prompt as it is, without the chat template");
    v(save_kv, "save_kv", 0, 4096, "keep the cache of prompt and answer in this file");
    v(load_kv, "load_kv", 0, 4096, "begin with a cache that --save-kv kept");
    v(special, "special", false, true, "with --raw: text that names a control token becomes it");
  }
};

// The words and standard input.
Result<std::string> read_prompt(Shell& shell, const std::vector<std::string>& words, bool raw) {
  std::string prompt;
  for (const std::string& word : words) prompt += (prompt.empty() ? "" : " ") + word;
  if (shell.stdin_terminal()) return prompt;
  TRY_ASSIGN(std::string input, shell.read_stdin(kPromptBytesMax));
  if (input.ends_with('\n')) input.pop_back();
  if (input.empty()) return prompt;
  if (!prompt.empty() && !raw) prompt += "\n\n";
  return prompt + input;
}

Result<std::vector<TokenId>> encode_prompt(Engine& engine, const std::string& prompt,
                                           const RunOptions& options, bool plain) {
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  if (plain) return encode_text(*tokenizer, prompt, options.special);
  TRY_ASSIGN(const Template* chat_template, engine.chat_template());
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return encode_conversation(*tokenizer, *chat_template, {{"messages", messages}});
}

// The part of the prompt that the file holds need not be computed.
Status load_kv(Shell& shell, Engine& engine, const std::string& path,
               std::span<const TokenId> prompt) {
  TRY_ASSIGN(const std::vector<TokenId> cached, load_cache(engine, path));
  const auto [end, unused] =
      std::mismatch(prompt.begin(), prompt.end(), cached.begin(), cached.end());
  const auto same = static_cast<size_t>(end - prompt.begin());
  if (same < std::min(cached.size(), prompt.size())) {
    shell.note(path + ": of its " + count_text(cached.size()) + " tokens the prompt begins with " +
               count_text(same));
  }
  return ok_status();
}

Status save_kv(Shell& shell, Engine& engine, const std::string& path, std::vector<TokenId> tokens,
               const Completion& completion) {
  tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end());
  TRY_ASSIGN(const size_t count, save_cache(engine, tokens, path));
  shell.note(path + ": the cache of " + count_text(count) + " tokens");
  return ok_status();
}

Status print_json(Shell& shell, const LoadedEngine& loaded, const Completion& completion) {
  nlohmann::ordered_json json = answer_json(completion);
  json["load_seconds"] = loaded.load_seconds;
  json["model"] = loaded.path;
  return shell.print(json_line(json));
}

}  // namespace

Status verb_run(Shell& shell, Arguments arguments) {
  ModelOptions model;
  RunOptions options;
  AnswerOptions answer;
  EngineOptions engine_options;
  SamplingOptions sampling;
  std::vector<std::string> words;
  Command command({"run",
                   "[PROMPT]",
                   "Prints one answer. Standard input is appended to the prompt. A model without a "
                   "chat\ntemplate continues the prompt (" +
                       std::to_string(kPlainTokens) + " tokens if --max-tokens does not say).",
                   {"kvikk run \"Why is the sky blue?\"",
                    "cat x.py | kvikk run -m qwen2.5-coder-1.5b \"explain\""}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options, {"system", "raw"});
  command.add(answer);
  command.add(sampling, {"temperature", "top_k", "top_p", "min_p", "seed"});
  command.add(engine_options, {"threads", "context", "kv", "weights", "spec"});
  command.take_words(words, 0, SIZE_MAX);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(validate(engine_options));
  if (options.special && !options.raw) return invalid_argument("--special needs --raw");
  if (words.empty() && shell.stdin_terminal()) {
    return invalid_argument("run needs a prompt: kvikk run \"Hello\", or text on standard input");
  }
  TRY_ASSIGN(std::string prompt, read_prompt(shell, words, options.raw));
  if (prompt.empty()) return invalid_argument("the prompt is empty");
  if (!is_valid_utf8(prompt)) {
    shell.note("the prompt is not valid UTF-8; wrong bytes are read as U+FFFD");
    prompt = replace_invalid_utf8(prompt);
  }

  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, engine_options));
  Engine& engine = *loaded.engine;
  TRY_ASSIGN(const bool has_template, has_chat_template(engine.file()));
  const bool plain = options.raw || !has_template;
  if (plain && !options.system.empty()) {
    return invalid_argument("--system needs a model with a chat template, and no --raw");
  }
  TRY_ASSIGN(std::vector<TokenId> tokens, encode_prompt(engine, prompt, options, plain));
  if (plain && answer.max_tokens == 0 && tokens.size() < engine.context()) {
    answer.max_tokens =
        static_cast<int32_t>(std::min<size_t>(kPlainTokens, engine.context() - tokens.size()));
  }
  if (!options.load_kv.empty()) TRY(load_kv(shell, engine, options.load_kv, tokens));
  TRY_ASSIGN(const Completion completion,
             stream_answer(shell, engine, make_request(tokens, answer, sampling), answer.json));
  if (!options.save_kv.empty()) {
    TRY(save_kv(shell, engine, options.save_kv, std::move(tokens), completion));
  }
  if (answer.json) TRY(print_json(shell, loaded, completion));
  if (answer.stats) {
    shell.note("load " + seconds_text(loaded.load_seconds) + "; " + stats_text(completion));
  }
  return ok_status();
}

}  // namespace kvikk
