// kvikk chat: a conversation in the terminal. Each turn sends the whole conversation; what the
// engine has computed before it finds in its prefix cache.

#include <optional>

#include "answer.h"
#include "conversation.h"
#include "engine/saved_cache.h"
#include "line_editor.h"
#include "model_source.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "text/utf8.h"
#include "verbs.h"

namespace kvikk {
namespace {

// Small steps, so that Ctrl-C is heard while a long message is read. They change no output.
constexpr int32_t kChatChunk = 64;
constexpr size_t kMessageBytesMax = size_t{16} << 20;
constexpr char kHelp[] =
    "/help          this\n"
    "/clear         forget the conversation\n"
    "/system TEXT   instructions for the model; nothing: show them\n"
    "/save FILE     write the conversation as JSON, its cache into FILE.kv\n"
    "/load FILE     go on with a saved conversation\n"
    "/stats         figures of the last answer and of the context\n"
    "/exit          leave, as Ctrl-D does\n"
    "\"\"\" begins and ends a message of several lines; so does \\ at the end of a line.\n"
    "Ctrl-C stops an answer.\n";

struct ChatOptions {
  std::string system;

  template <class V>
  void visit(V&& v) {
    v(system, "system", 0, 1 << 20, "instructions that come before the conversation");
  }
};

class Chat {
 public:
  Chat(Shell& shell, LoadedEngine& loaded, const ChatOptions& options, const AnswerOptions& answer,
       const SamplingOptions& sampling)
      : shell_(shell),
        engine_(*loaded.engine),
        answer_(answer),
        sampling_(sampling),
        editor_(shell),
        conversation_(options.system) {}

  Status run();

 private:
  enum class Next { kGoOn, kLeave };

  Result<LineEditor::Outcome> read_message(std::string& message);
  Result<LineEditor::Outcome> read_rest(std::string& message, bool quoted);
  Result<Next> at_interrupt();
  Result<Next> handle(const std::string& message);
  Next command(const std::string& message);
  Status answer(std::string message);
  void save_or_load(bool save, const std::string& path);
  void show_stats();
  // Messages may quote what comes from files.
  void say(const std::string& text) { shell_.message(printable(text) + "\n"); }

  Shell& shell_;
  Engine& engine_;
  AnswerOptions answer_;
  SamplingOptions sampling_;
  LineEditor editor_;
  Conversation conversation_;
  std::optional<Completion> last_;
  std::vector<TokenId> cached_;  // of the last prompt and its answer
  bool interrupted_before_ = false;
};

// The lines after the first of a message of several.
Result<LineEditor::Outcome> Chat::read_rest(std::string& message, bool quoted) {
  std::string line;
  for (;;) {
    TRY_ASSIGN(const LineEditor::Outcome outcome, editor_.read("... ", line));
    if (outcome == LineEditor::Outcome::kInterrupted) return outcome;
    if (outcome == LineEditor::Outcome::kEnd) return LineEditor::Outcome::kLine;
    if (message.size() + line.size() > kMessageBytesMax) {
      return exhausted("a message may have " + std::to_string(kMessageBytesMax) + " bytes");
    }
    if (quoted) {
      const size_t end = line.find("\"\"\"");
      message += "\n" + line.substr(0, end);
      if (end != std::string::npos) return LineEditor::Outcome::kLine;
    } else {
      const bool more = line.ends_with('\\');
      message += "\n" + line.substr(0, line.size() - (more ? 1 : 0));
      if (!more) return LineEditor::Outcome::kLine;
    }
  }
}

Result<LineEditor::Outcome> Chat::read_message(std::string& message) {
  TRY_ASSIGN(LineEditor::Outcome outcome, editor_.read(">>> ", message));
  if (outcome != LineEditor::Outcome::kLine) return outcome;
  editor_.remember(message);
  if (message.starts_with("\"\"\"")) {
    message.erase(0, 3);
    const size_t end = message.find("\"\"\"");
    if (end != std::string::npos) {
      message.resize(end);
      return outcome;
    }
    return read_rest(message, true);
  }
  if (!message.ends_with('\\')) return outcome;
  message.pop_back();
  return read_rest(message, false);
}

// Ctrl-C while a message is written drops the message; a second one leaves.
Result<Chat::Next> Chat::at_interrupt() {
  if (!editor_.interactive() || interrupted_before_) return Next::kLeave;
  shell_.interrupts().clear();
  if (shell_.interrupts().raised()) return Next::kLeave;
  interrupted_before_ = true;
  shell_.message("(Ctrl-D, /exit or Ctrl-C again leaves)\n");
  return Next::kGoOn;
}

Status Chat::run() {
  if (editor_.interactive()) {
    say(engine_.config().name + ", context " + count_text(engine_.context()) +
        " tokens; /help says more");
  }
  for (;;) {
    std::string message;
    Result<LineEditor::Outcome> outcome = LineEditor::Outcome::kInterrupted;
    {
      // On a terminal the editor returns at once; without one there is nothing to wait for.
      std::optional<StopOnInterrupt> stop;
      if (editor_.interactive()) stop.emplace(shell_.interrupts());
      outcome = read_message(message);
    }
    if (!outcome.ok()) return outcome.status();
    if (*outcome == LineEditor::Outcome::kEnd) return ok_status();
    Next next = Next::kGoOn;
    if (*outcome == LineEditor::Outcome::kInterrupted) {
      TRY_ASSIGN(next, at_interrupt());
    } else {
      interrupted_before_ = false;
      TRY_ASSIGN(next, handle(message));
    }
    if (next == Next::kLeave) return ok_status();
  }
}

Result<Chat::Next> Chat::handle(const std::string& message) {
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) return Next::kGoOn;
  if (message.starts_with('/')) return command(message);
  TRY(answer(message));
  return Next::kGoOn;
}

Chat::Next Chat::command(const std::string& message) {
  const size_t space = std::min(message.find(' '), message.size());
  const std::string name = message.substr(0, space);
  std::string argument = message.substr(std::min(space + 1, message.size()));
  while (argument.ends_with(' ')) argument.pop_back();
  if (name == "/exit" || name == "/quit" || name == "/bye") return Next::kLeave;
  if (name == "/help") {
    shell_.message(kHelp);
  } else if (name == "/clear") {
    conversation_.clear();
    cached_.clear();
    shell_.message("The conversation is forgotten.\n");
  } else if (name == "/stats") {
    show_stats();
  } else if (name == "/system") {
    if (!argument.empty()) conversation_.set_system(argument);
    say("Instructions: " + conversation_.system());
  } else if (name == "/save" || name == "/load") {
    if (argument.empty()) {
      shell_.message(name + " needs the name of a file.\n");
      return Next::kGoOn;
    }
    save_or_load(name == "/save", argument);
  } else {
    say("There is no command " + name +
        "; /help lists them. A space before it makes it a message.");
  }
  return Next::kGoOn;
}

// A conversation is worth having without its cache, which then is computed again.
void Chat::save_or_load(bool save, const std::string& path) {
  const Status status = save ? conversation_.save(path) : conversation_.load(path);
  if (!status.ok()) return say(status.message());
  const size_t turns = conversation_.turns();
  say((save ? "Saved " : "Loaded ") + count_text(turns) + (turns == 1 ? " turn." : " turns."));
  const std::string file = path + ".kv";
  Status kept;
  if (save) {
    kept = save_cache(engine_, cached_, file).status();
  } else {
    Result<std::vector<TokenId>> loaded = load_cache(engine_, file);
    kept = loaded.status();
    if (loaded.ok()) cached_ = std::move(*loaded);
  }
  // Short conversations have none.
  if (kept.ok()) say("Its cache of " + count_text(cached_.size()) + " tokens too: " + file);
  if (!kept.ok() && kept.code() != StatusCode::kNotFound) {
    say("Without its cache: " + kept.message());
  }
}

void Chat::show_stats() {
  if (!last_.has_value()) {
    shell_.message("There was no answer yet.\n");
    return;
  }
  shell_.message(stats_text(*last_) + "\ncontext " +
                 count_text(last_->prompt_tokens + last_->tokens.size()) + " of " +
                 count_text(engine_.context()) + " tokens\n");
}

Status Chat::answer(std::string message) {
  if (!is_valid_utf8(message)) message = replace_invalid_utf8(message);
  Result<std::vector<TokenId>> prompt = conversation_.prompt(engine_, message);
  if (!prompt.ok()) {
    say(prompt.status().message());
    return ok_status();
  }
  const size_t prompt_tokens = prompt->size();
  if (prompt_tokens >= engine_.context()) {
    shell_.message("The context is full: with this message the conversation has " +
                   count_text(prompt_tokens) + " tokens, and " + count_text(engine_.context()) +
                   " fit. /clear begins anew; --context makes room for more.\n");
    return ok_status();
  }
  AnswerOptions options = answer_;
  options.max_tokens =
      std::min(options.max_tokens, static_cast<int32_t>(engine_.context() - prompt_tokens));
  cached_ = *prompt;
  Request request = make_request(std::move(*prompt), options, sampling_);
  const StopOnInterrupt stop(shell_.interrupts());
  Result<Completion> completion = stream_answer(shell_, engine_, std::move(request), answer_.json);
  shell_.interrupts().clear();
  TRY(completion.ok() ? ok_status() : completion.status());
  if (answer_.json) TRY(shell_.print(json_line(answer_json(*completion))));
  if (answer_.stats) shell_.message(stats_text(*completion) + "\n");
  const size_t total = prompt_tokens + completion->tokens.size();
  if (completion->reason == FinishReason::kLength && total >= engine_.context()) {
    shell_.message("The context is full: all " + count_text(engine_.context()) +
                   " tokens are used. /clear begins anew.\n");
  }
  cached_.insert(cached_.end(), completion->tokens.begin(), completion->tokens.end());
  conversation_.add(message, completion->text);
  last_ = std::move(*completion);
  return ok_status();
}

}  // namespace

Status verb_chat(Shell& shell, Arguments arguments) {
  ModelOptions model;
  ChatOptions options;
  AnswerOptions answer;
  EngineOptions engine_options;
  engine_options.chunk = kChatChunk;
  SamplingOptions sampling;
  Command command({"chat",
                   "",
                   "Talks with a model in the terminal; /help lists what it understands. Without a "
                   "terminal\neach line of standard input is a message.",
                   {"kvikk chat", "kvikk chat -m qwen2.5-coder-1.5b --system \"Be brief.\""}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(answer, {"max_tokens", "stats", "json"});
  command.add(sampling, {"temperature", "top_k", "top_p", "min_p", "seed"});
  command.add(engine_options, {"threads", "context", "kv", "weights", "spec"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, engine_options));
  Chat chat(shell, loaded, options, answer, sampling);
  return chat.run();
}

}  // namespace kvikk
