#pragma once
// What the server counts, in the text format and under the names that Prometheus and request
// routers read. docs/server.md lists them.

#include <memory>
#include <string>

#include "serving/engine_thread.h"
#include "serving/generation.h"

namespace kvikk {

class Metrics {
 public:
  // `blocks`: of 64 tokens, that the cache holds.
  Metrics(const std::string& model, size_t blocks);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A request that the engine or the queue answered is over.
  void count(const GenerationReport& report);
  // The text for a scrape.
  std::string text(const EngineLoad& load, size_t connections);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace kvikk
