#pragma once
// Lines from whoever talks to 'kvikk chat': on a terminal with editing and a history that is kept
// between runs, otherwise as they come.

#include <memory>
#include <string>

#include "base/status.h"
#include "shell.h"

namespace kvikk {

class LineEditor {
 public:
  explicit LineEditor(Shell& shell);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome { kLine, kEnd, kInterrupted };
  // The next line without its end. `prompt` is shown only on a terminal.
  Result<Outcome> read(const std::string& prompt, std::string& line);

  // Adds a line to the history.
  void remember(const std::string& line);
  bool interactive() const { return terminal_ != nullptr; }

 private:
  struct Terminal;
  Shell& shell_;
  std::unique_ptr<Terminal> terminal_;  // null: not a terminal
  std::unique_ptr<LineReader> lines_;
};

// $XDG_STATE_HOME/kvikk, or ~/.local/state/kvikk; empty where there is no home.
std::string state_folder();

}  // namespace kvikk
