#pragma once
// Runs a program and waits for it without ever leaving it behind: it gets a process group of its
// own, which is killed when the caller asks, and dies with this process.

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace kvikk {

struct ChildCommand {
  std::vector<std::string> arguments;    // arguments[0] is looked up in PATH
  std::vector<std::string> environment;  // NAME=VALUE, over this process's environment
  std::string log_path;                  // gets its standard output and error; input is empty
  std::function<bool()> keep_running;    // asked every 20 ms; false kills it
};

// Returns the exit code, 128 + N when signal N ended it, as a shell does.
// Errors: kCancelled when keep_running said so; kNotFound when there is no such program; kIo.
Result<int> run_child(const ChildCommand& command);

}  // namespace kvikk
