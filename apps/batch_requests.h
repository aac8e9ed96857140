#pragma once
// The requests of 'kvikk eval batch': one JSON object a line.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "kvikk/request.h"
#include "shell.h"

namespace kvikk {

inline constexpr size_t kBatchRequestsMax = 1 << 20;

struct BatchRequest {
  nlohmann::ordered_json id;  // as the line has it
  Request request;
  std::string where;  // file and line
};

// Reads and encodes every line, so that a wrong one is found before anything is computed. What a
// line does not say comes from `defaults`. Errors name the line.
Result<std::vector<BatchRequest>> read_batch(Shell& shell, const std::string& path, Engine& engine,
                                             const Request& defaults);

nlohmann::ordered_json batch_answer(const BatchRequest& request, const Completion& completion);

}  // namespace kvikk
