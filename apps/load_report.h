#pragma once
// Figures of a load, as a table, JSON and a picture.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load_client.h"
#include "load_plan.h"

namespace kvikk {

struct LoadFigures {
  size_t clients = 0;  // 0: requests came at their times
  size_t requests = 0;
  size_t failed = 0;
  std::string first_error;
  double seconds = 0;          // from the first request to the last answer
  double sending_seconds = 0;  // from the first request to the last
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;
  size_t completion_tokens = 0;
  size_t within_limits = 0;  // requests
  std::vector<double> ttft;  // seconds, sorted, as the next three
  std::vector<double> itl;
  std::vector<double> tpot;
  std::vector<double> e2e;
  bool interrupted = false;
};

// Limits in seconds. A request that failed is within none.
LoadFigures summarize(std::vector<LoadResult> results, double ttft_max, double tpot_max);

std::string load_table(const LoadFigures& figures);
nlohmann::ordered_json load_json(const std::vector<LoadFigures>& runs, const LoadOptions& options);
// One run: which part of the waits takes at most how long. Several: throughput over speed for one
// user.
std::string load_svg(const std::vector<LoadFigures>& runs, const std::string& title);

}  // namespace kvikk
