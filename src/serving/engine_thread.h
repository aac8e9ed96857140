#pragma once
// The thread that owns the engine. Other threads hand it requests and hear of what they give; none
// touches scheduler or cache, so neither needs a lock.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "serving/repetition_guard.h"

namespace kvikk {

// A Chunk that outlives the step it came from.
struct TokenEvent {
  TokenId token = 0;
  std::string text;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

// What becomes of an answer that repeats itself: its end, or another try with another seed.
struct GuardPolicy {
  bool on = false;
  int retries_max = 0;  // only where nobody was given the tokens of an answer as they came
};

// What a request got.
struct Answer : Completion {
  bool repeated = false;  // it ended, with kStop, because it repeated itself
  int retries = 0;        // answers that did before it
};

// Hears of the requests of one job, by their index in it. Called where `deliver` runs things.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void on_token(size_t index, const TokenEvent& event) = 0;
  // The last word about a request; always comes.
  virtual void on_done(size_t index, Answer answer) = 0;
};

struct EngineLoad {
  size_t running = 0;
  size_t waiting = 0;
  double cache_used = 0;     // of the key-value cache, set aside for what runs: 0 to 1
  size_t cached_blocks = 0;  // of 64 tokens, in the prefix cache
  PrefixStoreStats disk;     // of its blocks on the disk, where they go there
  size_t leaked_slabs = 0;   // of the cache, at the last time when nothing ran; a bug if not 0
  SchedulerStats stats;
  SpeculationStats speculation;
};

using JobId = uint64_t;

class EngineThread {
 public:
  using Deliver = std::function<void(std::function<void()>)>;

  // `deliver` runs a task on the thread of the listeners. `queue_max`: requests that wait beyond
  // those that can run. The engine's tokenizer and template must have been made before.
  EngineThread(Engine& engine, size_t queue_max, Deliver deliver);
  // Cancels what is left.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // From any thread. All requests of a job or none: kExhausted when they do not fit into the queue.
  // Tokens come only when `streams`. The requests have passed Engine::check.
  Result<JobId> submit(std::vector<Request> requests, std::shared_ptr<JobListener> listener,
                       bool streams, GuardPolicy guard = {});
  // From any thread. Ends a job at the next step; unknown ones are over already.
  void cancel(JobId job);
  void cancel_all();

  EngineLoad load() const;
  // Requests that were submitted and are not done. 0: nothing is left to deliver but events that
  // are on their way.
  size_t open_requests() const;

 private:
  struct Job {
    JobId id = 0;
    std::vector<Request> requests;
    std::shared_ptr<JobListener> listener;
    bool streams = false;
    GuardPolicy guard;
  };
  // One thing that a listener is to hear.
  struct Event {
    std::shared_ptr<JobListener> listener;
    size_t index = 0;
    TokenEvent token;
    std::unique_ptr<Answer> answer;  // null: a token
  };

  // A request of a job that runs.
  struct Task {
    Request request;  // as it was asked, where it may be tried again
    RequestId id = 0;
    bool done = false;
    std::optional<RepetitionGuard> guard;
    size_t tokens = 0;  // that the guard let pass; with it alone, as the next three
    std::string text;   // of them
    bool repeated = false;
    TokenEvent held;  // the token that repeated
    int retries = 0;
  };
  struct Running {
    std::shared_ptr<JobListener> listener;
    bool streams = false;
    GuardPolicy guard;
    bool cancelled = false;
    std::vector<Task> tasks;
  };

  void run();
  bool take_work();
  void start_job(Job job);
  void start_task(JobId job, size_t index, Request request);
  void token_came(JobId job, size_t index, const Chunk& chunk);
  void request_done(JobId job, size_t index, const Completion& completion);
  void finish_task(JobId job, size_t index, Answer answer);
  bool wants_retry(const Running& running, const Task& task, const Completion& completion) const;
  void follow_guard();
  void step();
  void flush();
  void fail_all(const std::string& why);

  Engine& engine_;
  const size_t queue_max_;
  const Deliver deliver_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Job> inbox_;
  std::vector<JobId> cancels_;
  bool cancel_all_ = false;
  bool stop_ = false;
  bool broken_ = false;
  JobId last_id_ = 0;
  size_t open_ = 0;
  EngineLoad load_;

  // The engine thread's own.
  std::map<JobId, Running> running_;
  std::vector<Event> events_;
  std::vector<RequestId> repeating_;               // to be ended after the step
  std::vector<std::pair<JobId, size_t>> retries_;  // to be started after the step

  std::thread thread_;  // last: it uses all the others
};

}  // namespace kvikk
