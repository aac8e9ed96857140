#pragma once
// What the server counts, in the text format and under the names that Prometheus and request
// routers read. docs/server.md lists them.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serving/generation.h"
#include "serving/model_host.h"

namespace kvikk {

class Metrics {
 public:
  // One after another, by index, as everywhere below.
  explicit Metrics(const std::vector<std::string>& models);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A request that the engine or the queue answered is over.
  void count(size_t model, const GenerationReport& report);
  // The text for a scrape.
  std::string text(std::span<const ModelStatus> models, size_t connections);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace kvikk
