#pragma once
// The engine: one loaded model, its cache, its scheduler. Everything runs on the thread that calls
// step(); worker threads live only inside a step. Commands and the server use the same calls.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/scheduler.h"
#include "kvikk/engine_options.h"
#include "kvikk/request.h"
#include "models/model.h"
#include "models/model_file.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace kvikk {

struct LoadProgress {
  uint64_t done_bytes;
  uint64_t total_bytes;
};

class Engine {
 public:
  // Loads weights and sizes the cache. Errors: kInvalidArgument (an option that does not fit),
  // kExhausted (says what was needed and what there is), those of load_weights.
  static Result<std::unique_ptr<Engine>> load(
      ModelFile file, const EngineOptions& options,
      const std::function<void(const LoadProgress&)>& progress = {});

  const ModelConfig& config() const { return model_->config(); }
  const EngineOptions& options() const { return options_; }  // with the automatic ones filled in
  const OpenedModel& file() const { return file_; }
  const char* cpu_level() const { return compute_->kernels().level; }
  Model& model() { return *model_; }
  Compute& compute() { return *compute_; }
  PagePool& pool() { return *pool_; }
  size_t context() const { return static_cast<size_t>(options_.context); }
  size_t weight_bytes() const { return model_->weights().memory.size(); }

  // The model's tokenizer and chat template, made on first use. Errors: kUnsupported or kDamaged
  // when it has none or one that cannot be used. Models without a tokenizer run on token ids.
  Result<const Tokenizer*> tokenizer();
  Result<const Template*> chat_template();

  // Whether a request can be answered at all. Errors: kInvalidArgument (empty prompt, a token
  // outside the vocabulary, an option out of range), kExhausted when it can never fit (with the
  // figures).
  Status check(const Request& request);
  // Queues a request; nothing is computed yet. Errors: those of check(), kExhausted when the queue
  // is full.
  Result<RequestId> submit(Request request);
  // Ends a request at the next step; its completion still comes, with what was generated.
  void cancel(RequestId id) { scheduler_->cancel(id); }
  // Computes one step of everything that runs. False when there is nothing to do.
  bool step() { return scheduler_->step(); }
  bool idle() const { return scheduler_->idle(); }
  Scheduler& scheduler() { return *scheduler_; }

  // Submits and steps until this request is complete; `cancelled` is asked once a step.
  Result<Completion> complete(Request request, const std::function<bool()>& cancelled = {});

 private:
  Engine() = default;
  Result<Sampler> make_sampler(const SamplingOptions& options);

  EngineOptions options_;
  OpenedModel file_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Scheduler> scheduler_;
  RequestId last_id_ = 0;
  std::optional<Result<Tokenizer>> tokenizer_;
  std::optional<Result<Template>> template_;
};

}  // namespace kvikk
