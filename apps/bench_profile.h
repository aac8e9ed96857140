#pragma once
// Where the time of a step goes: a table by kind of phase, and a trace that Perfetto and Chrome's
// about:tracing open.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/phase_log.h"

namespace kvikk {

struct PhaseShare {
  std::string label;
  size_t count = 0;
  double seconds = 0;  // from the phases' beginning to their end
  double waiting = 0;  // of it, per thread: without work before the barrier
};

// What a logged stretch of `steps` steps consists of; the largest share first. "between phases" is
// what one thread does alone while the others wait for the next phase.
struct Profile {
  std::string name;  // of the stretch, "decode"
  size_t steps = 0;
  double seconds = 0;              // of one step
  std::vector<PhaseShare> shares;  // of one step
  size_t barriers = 0;             // of one step
};

Profile summarize(std::string name, const PhaseLog& log, size_t steps);

std::string profile_table(const Profile& profile);
nlohmann::ordered_json profile_json(const Profile& profile);

// The trace-event format: one track a thread, times in microseconds.
std::string trace_json(const std::vector<std::pair<std::string, const PhaseLog*>>& logs);

}  // namespace kvikk
