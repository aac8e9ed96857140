#pragma once
// How many rows of prompts a step may compute beside rows of answers: whoever reads an answer waits
// for the whole step. What rows cost is measured, on this machine, for this model, now.

#include <array>
#include <cstddef>

namespace kvikk {

class StepPacer {
 public:
  // `step_seconds_max`: what a step may take while answers are written. 0: kStretch times what it
  // takes without prompts, but at least 40 ms: nobody sees those.
  explicit StepPacer(double step_seconds_max) : step_seconds_max_(step_seconds_max) {}

  // Of at most `most`; all of them when there are no rows of answers.
  size_t prompt_rows(size_t answer_rows, size_t most) const;
  void measured(size_t answer_rows, size_t prompt_rows, double seconds);

  static constexpr double kStretch = 3;
  // However slow the machine, prompts go on.
  static constexpr size_t kPromptRowsMin = 8;
  // Before anything was measured.
  static constexpr size_t kPromptRowsFirst = 32;

 private:
  // Of a step with so many rows of answers alone; 0: nothing like it was measured.
  double answer_seconds(size_t rows) const;

  double step_seconds_max_;
  std::array<double, 16> answer_seconds_{};  // by the number of bits of the rows; 0: not measured
  double row_seconds_ = 0;                   // of one row of a prompt; 0: not measured
};

}  // namespace kvikk
