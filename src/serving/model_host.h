#pragma once
// The models of a server: loaded when a request wants one, unloaded when nobody does, within a
// budget of memory.
//
// One thread loads and unloads, so no request of another model waits for either. A model is used
// through a lease; it is taken away only when nobody has one. Where memory is wanted for another
// model, the one that was used longest ago goes, those in use last: such a one gets no new leases,
// finishes what it has and makes room, so that no model waits for ever.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "serving/engine_thread.h"

namespace kvikk {

struct ServedModel {
  std::string name;                // in answers
  std::vector<std::string> names;  // that requests may call it by as well; listed
  std::string path;                // requests may say this instead; nobody is told
  size_t weight_bytes = 0;         // about: before it is loaded
  // On the host's thread, and once on that of start(). `cache_bytes_max` bounds the key-value
  // cache; 0: as the engine's options say.
  std::function<Result<std::unique_ptr<Engine>>(size_t cache_bytes_max)> open;
};

struct LoadedModel {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EngineThread> runner;  // last: it uses the engine
};

// What there is to say about a model now.
struct ModelStatus {
  bool loaded = false;
  uint64_t loads = 0;       // how often it was loaded
  size_t memory_bytes = 0;  // weights and cache; 0: not loaded
  size_t context = 0;       // this and the next three as of the last time; 0: never yet
  size_t cache_blocks = 0;  // of 64 tokens, that the cache holds
  std::string kv;
  int32_t parallel = 0;
  EngineLoad load;  // its counts go on when a model is loaded again
};

// What is counted; not what is now.
void add_counts(EngineLoad& total, const EngineLoad& more);

class ModelHost {
 public:
  using Lease = std::shared_ptr<LoadedModel>;
  using Ready = std::function<void(Result<Lease>)>;
  struct Options {
    size_t memory_bytes_max = 0;            // of weights and caches together; 0: no limit
    std::chrono::milliseconds idle_max{0};  // then a model is unloaded; 0: never
    size_t queue_max = 256;                 // requests of a model that wait
    EngineThread::Deliver deliver;
    std::function<void(const std::string&)> note;  // what happened, for people; any thread
  };

  // Loads the first model. Errors: those of opening it; kInvalidArgument where two models have the
  // same name or one does not fit into the budget.
  static Result<std::unique_ptr<ModelHost>> start(std::vector<ServedModel> models, Options options);
  // Stops; ends what runs.
  ~ModelHost();

  size_t count() const;
  const ServedModel& model(size_t index) const;
  std::optional<size_t> find(const std::string& name) const;
  ModelStatus status(size_t index) const;

  // The model if it is loaded, or why it cannot be: kExhausted (too many wait), kCancelled
  // (stopped). Otherwise nothing yet, and `ready` hears of it once, on the host's thread: also of
  // the errors of opening it. From any thread.
  std::optional<Result<Lease>> take(size_t index, Ready ready);
  // Loads nothing more; whoever waits is told. Leases stay good.
  void stop();
  // Ends what runs.
  void cancel_all();

 private:
  struct State;
  explicit ModelHost(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // leases hold it too
  std::thread thread_;
};

}  // namespace kvikk
