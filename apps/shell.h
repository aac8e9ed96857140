#pragma once
// What every command says and reads: results on standard output and nothing else, everything else
// on standard error.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "interrupt.h"

namespace kvikk {

class Shell {
 public:
  Shell();

  Interrupts& interrupts() { return interrupts_; }
  bool stdin_terminal() const { return stdin_terminal_; }
  bool stdout_terminal() const { return stdout_terminal_; }
  bool stderr_terminal() const { return stderr_terminal_; }

  // Writes all of it to standard output now. Errors: kIo. Nobody reading any more is one too
  // (is_closed_output), about which the program says nothing.
  Status print(std::string_view text);
  // As print; on a terminal, printable() text.
  Status print_model_text(std::string_view text);
  // A line on standard error: "kvikk: TEXT".
  void note(std::string_view text);
  // Standard error as it is.
  void message(std::string_view text);

  // kCancelled once Ctrl-C was pressed.
  Status go_on() const;

  // Everything on standard input. A pipe that gives nothing is waited for, since what it will bring
  // cannot be known, but the user is told. Errors: kIo, kExhausted beyond bytes_max, kCancelled.
  Result<std::string> read_stdin(size_t bytes_max);
  // Waits for input on standard input, or its end. False: interrupted, or nothing came in time
  // (milliseconds; -1: no limit).
  bool wait_for_stdin(int timeout_ms = -1);
  // What is there on standard input; empty at its end.
  Result<std::string> read_some_stdin();

 private:
  // Opens /dev/null in place of a standard stream that is closed, before anything else is opened,
  // so that no file takes its number.
  struct StandardStreams {
    StandardStreams();
  };

  StandardStreams streams_;
  Interrupts interrupts_;
  bool stdin_terminal_;
  bool stdout_terminal_;
  bool stderr_terminal_;
};

bool is_closed_output(const Status& status);

// The text with control characters shown as U+FFFD: what a model or a file says must not play with
// the terminal.
std::string printable(std::string_view text);

// Whether both paths lead to the same regular file.
bool is_same_file(const std::string& a, const std::string& b);

// A regular file's whole content. Errors: kNotFound, kIo, kExhausted beyond bytes_max.
Result<std::string> read_file(const std::string& path, size_t bytes_max);

// A file for results. It is opened before the work and emptied at the first write, so that a wrong
// path is found early and a failure leaves what was there.
class OutputFile {
 public:
  // Errors: kIo; kInvalidArgument when it is one of `inputs`, which writing would destroy.
  static Result<OutputFile> open(const std::string& path,
                                 const std::vector<std::string>& inputs = {});

  // Null for an empty path.
  static Result<std::unique_ptr<OutputFile>> open_if_named(const std::string& path,
                                                           const std::vector<std::string>& inputs);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  // Removes the file if open() made it and nothing was written.
  ~OutputFile();

  Status write(std::string_view bytes);
  // Writes at an offset; not for pipes.
  Status write_at(size_t offset, std::string_view bytes);
  // Ends the writing. Errors that the system reports late.
  Status close();

 private:
  OutputFile() = default;
  Status start();

  std::string path_;
  int descriptor_ = -1;
  bool created_ = false;
  bool started_ = false;
};

// Reads lines from a file or, with "-", from standard input, as they come.
class LineReader {
 public:
  static Result<LineReader> open(Shell& shell, const std::string& path);

  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // The next line without its end; false at the end of the file. Errors: kIo, kExhausted for a
  // line beyond kLineBytesMax, kCancelled.
  Result<bool> next(std::string& line);
  // Of the line that next() returned last, from 1; "FILE:LINE" for messages.
  std::string where() const;

  static constexpr size_t kLineBytesMax = size_t{64} << 20;

 private:
  explicit LineReader(Shell& shell) : shell_(&shell) {}

  Shell* shell_;
  std::string name_;
  int descriptor_ = -1;
  bool owned_ = false;
  bool ended_ = false;
  std::string buffer_;
  size_t begin_ = 0;    // of the next line in buffer_
  size_t scanned_ = 0;  // buffer_ has no line end in [begin_, scanned_)
  size_t line_ = 0;
};

}  // namespace kvikk
