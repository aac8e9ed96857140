// libedit, with reading of characters of our own, so that an interrupt ends it at once.
#include "line_editor.h"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "text/utf8.h"

namespace kvikk {
namespace {

constexpr int kHistoryLines = 1000;

// libedit decides by the locale which characters are one column wide; the default one knows none
// beyond ASCII.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

std::string state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/kvikk";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return "";
  return std::string(home) + "/.local/state/kvikk";
}

struct LineEditor::Terminal {
  explicit Terminal(Shell& s) : shell(s) {
    use_utf8_locale();
    // Everything that is drawn goes to standard error: standard output is for answers.
    edit = el_init("kvikk", stdin, stderr, stderr);
    history = history_init();
    if (edit == nullptr || history == nullptr) return;
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &Terminal::show_prompt);
    el_set(edit, EL_GETCFN, &Terminal::read_character);
    el_set(edit, EL_HIST, ::history, history);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit, nullptr);
    const std::string folder = state_folder();
    if (folder.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    history_path = folder + "/history";
    ::history(history, &event, H_LOAD, history_path.c_str());
  }

  ~Terminal() {
    if (history != nullptr) history_end(history);
    if (edit != nullptr) el_end(edit);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static Terminal& of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  // One character; 0 at the end, -1 when interrupted.
  static int read_character(EditLine* edit, wchar_t* out) {
    Terminal& self = of(edit);
    std::string bytes;
    do {
      if (!self.shell.wait_for_stdin()) return -1;
      char byte;
      const ssize_t got = ::read(0, &byte, 1);
      if (got <= 0) return static_cast<int>(got);
      bytes += byte;
    } while (incomplete_utf8_tail(bytes) == bytes.size());
    *out = static_cast<wchar_t>(decode_utf8(bytes.data(), bytes.data() + bytes.size()).code_point);
    return 1;
  }

  Shell& shell;
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string history_path;
  std::string prompt;
};

LineEditor::LineEditor(Shell& shell) : shell_(shell) {
  if (shell.stdin_terminal() && shell.stderr_terminal()) {
    terminal_ = std::make_unique<Terminal>(shell);
    if (terminal_->edit == nullptr || terminal_->history == nullptr) terminal_.reset();
  }
}

LineEditor::~LineEditor() = default;

Result<LineEditor::Outcome> LineEditor::read(const std::string& prompt, std::string& line) {
  if (terminal_ == nullptr) {
    if (lines_ == nullptr) {
      TRY_ASSIGN(LineReader lines, LineReader::open(shell_, "-"));
      lines_ = std::make_unique<LineReader>(std::move(lines));
    }
    Result<bool> more = lines_->next(line);
    if (!more.ok() && more.status().code() == StatusCode::kCancelled) return Outcome::kInterrupted;
    if (!more.ok()) return more.status();
    return *more ? Outcome::kLine : Outcome::kEnd;
  }
  terminal_->prompt = prompt;
  el_resize(terminal_->edit);
  // The editor would show the prompt first: a Ctrl-D typed in between would be lost.
  el_set(terminal_->edit, EL_PREP_TERM, 1);
  int count = 0;
  const char* text = el_gets(terminal_->edit, &count);
  if (shell_.interrupts().raised()) {
    shell_.message("\n");
    return Outcome::kInterrupted;
  }
  if (text == nullptr || count <= 0) {
    shell_.message("\n");
    return Outcome::kEnd;
  }
  line.assign(text, static_cast<size_t>(count));
  if (line.ends_with('\n')) line.pop_back();
  return Outcome::kLine;
}

void LineEditor::remember(const std::string& line) {
  if (terminal_ == nullptr || line.empty()) return;
  HistEvent event;
  ::history(terminal_->history, &event, H_ENTER, line.c_str());
  if (terminal_->history_path.empty()) return;
  // A history that cannot be kept is no reason to disturb the conversation.
  ::history(terminal_->history, &event, H_SAVE, terminal_->history_path.c_str());
  ::chmod(terminal_->history_path.c_str(), S_IRUSR | S_IWUSR);
}

}  // namespace kvikk
