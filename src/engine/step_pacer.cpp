#include "engine/step_pacer.h"

#include <algorithm>
#include <bit>

namespace kvikk {
namespace {

constexpr double kWeightOfNew = 0.2;
// Shorter steps hold prompts up more than they help those that read.
constexpr double kAutomaticSecondsMin = 0.04;

void blend(double& average, double value) {
  average = average == 0 ? value : average + kWeightOfNew * (value - average);
}

size_t place_of(size_t rows) { return std::min<size_t>(std::bit_width(rows), 15); }

}  // namespace

double StepPacer::answer_seconds(size_t rows) const {
  const size_t place = place_of(rows);
  for (size_t away = 0; away < answer_seconds_.size(); ++away) {  // the nearest that is known
    if (place >= away && answer_seconds_[place - away] > 0) return answer_seconds_[place - away];
    const size_t above = place + away;
    if (above < answer_seconds_.size() && answer_seconds_[above] > 0) return answer_seconds_[above];
  }
  return 0;
}

size_t StepPacer::prompt_rows(size_t answer_rows, size_t most) const {
  if (answer_rows == 0) return most;
  const double alone = answer_seconds(answer_rows);
  const double longest =
      step_seconds_max_ > 0 ? step_seconds_max_ : std::max(kStretch * alone, kAutomaticSecondsMin);
  if (row_seconds_ == 0 || alone == 0) return std::min(most, kPromptRowsFirst);
  const double rows = std::max(0.0, longest - alone) / row_seconds_;
  return std::min(most, std::max(kPromptRowsMin, static_cast<size_t>(std::min(rows, 1e6))));
}

void StepPacer::measured(size_t answer_rows, size_t prompt_rows, double seconds) {
  if (prompt_rows == 0) {
    if (answer_rows > 0) blend(answer_seconds_[place_of(answer_rows)], seconds);
    return;
  }
  // Rows of a large piece alone are cheaper than those of a small one beside answers: a first
  // guess.
  const double alone = answer_rows == 0 ? 0.0 : answer_seconds(answer_rows);
  if (answer_rows == 0 ? row_seconds_ > 0 || prompt_rows < kPromptRowsFirst : alone == 0) return;
  blend(row_seconds_, std::max(seconds - alone, seconds / 16) / static_cast<double>(prompt_rows));
}

}  // namespace kvikk
