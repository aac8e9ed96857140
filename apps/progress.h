#pragma once
// A line on standard error that says how far something is; only on a terminal, and only when it
// takes long enough to be read.

#include <chrono>
#include <cstdint>
#include <string>

#include "shell.h"

namespace kvikk {

class Progress {
 public:
  // `unit_bytes`: the counts are bytes.
  Progress(Shell& shell, std::string label, bool unit_bytes);
  ~Progress();  // takes the line away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(uint64_t done, uint64_t total);
  // Another label from now on.
  void set_label(std::string label);

 private:
  using Clock = std::chrono::steady_clock;
  Shell& shell_;
  std::string label_;
  bool unit_bytes_;
  bool visible_ = false;
  Clock::time_point next_;
};

}  // namespace kvikk
