#include "serving/engine_thread.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace kvikk {
namespace {

constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c15;  // from the seed of a try to that of the next

}  // namespace

EngineThread::EngineThread(Engine& engine, size_t queue_max, Deliver deliver)
    : engine_(engine), queue_max_(queue_max), deliver_(std::move(deliver)) {
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    cancel_all_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<JobId> EngineThread::submit(std::vector<Request> requests,
                                   std::shared_ptr<JobListener> listener, bool streams,
                                   GuardPolicy guard) {
  CHECK(!requests.empty());
  JobId id = 0;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return cancelled("the server is stopping");
    if (broken_) return exhausted("the engine ran out of memory; restart the server");
    const size_t most = queue_max_ + static_cast<size_t>(engine_.options().parallel);
    if (open_ + requests.size() > most) {
      return exhausted("the queue is full: " + std::to_string(open_) +
                       " requests run or wait, at most " + std::to_string(most) + " can");
    }
    id = ++last_id_;
    open_ += requests.size();
    inbox_.push_back({id, std::move(requests), std::move(listener), streams, guard});
  }
  wake_.notify_one();
  return id;
}

void EngineThread::cancel(JobId job) {
  {
    std::lock_guard lock(mutex_);
    cancels_.push_back(job);
  }
  wake_.notify_one();
}

void EngineThread::cancel_all() {
  {
    std::lock_guard lock(mutex_);
    cancel_all_ = true;
  }
  wake_.notify_one();
}

EngineLoad EngineThread::load() const {
  std::lock_guard lock(mutex_);
  EngineLoad load = load_;
  // Those on their way to the scheduler wait too.
  load.running = std::min(load.running, open_);
  load.waiting = open_ - load.running;
  return load;
}

size_t EngineThread::open_requests() const {
  std::lock_guard lock(mutex_);
  return open_;
}

void EngineThread::run() {
  try {
    while (take_work()) step();
  } catch (const std::bad_alloc&) {
    fail_all("out of memory");
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
}

// Waits until there is something to do. False: the end.
bool EngineThread::take_work() {
  std::vector<Job> jobs;
  std::vector<JobId> cancels;
  bool all = false;
  bool stop = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      return stop_ || cancel_all_ || !inbox_.empty() || !cancels_.empty() || !engine_.idle();
    });
    jobs.swap(inbox_);
    cancels.swap(cancels_);
    all = std::exchange(cancel_all_, false);
    stop = stop_;
  }
  for (Job& job : jobs) start_job(std::move(job));
  if (all) {
    for (const auto& [id, running] : running_) cancels.push_back(id);
  }
  for (const JobId id : cancels) {
    const auto found = running_.find(id);
    if (found == running_.end()) continue;
    found->second.cancelled = true;
    for (const Task& task : found->second.tasks) {
      if (!task.done) engine_.cancel(task.id);
    }
  }
  return !stop || !running_.empty();
}

void EngineThread::start_job(Job job) {
  Running& running = running_[job.id];
  running.listener = std::move(job.listener);
  running.streams = job.streams;
  running.guard = job.guard;
  running.tasks.resize(job.requests.size());
  for (size_t i = 0; i < job.requests.size(); ++i) {
    if (job.guard.retries_max > 0) running.tasks[i].request = job.requests[i];
  }
  // The last to fail ends the job.
  for (size_t i = 0; i < job.requests.size(); ++i) {
    start_task(job.id, i, std::move(job.requests[i]));
  }
}

void EngineThread::start_task(JobId job, size_t index, Request request) {
  Running& running = running_.at(job);
  Task& task = running.tasks[index];
  if (running.guard.on) {
    task.guard.emplace([this](TokenId token) {
      const auto tokenizer = engine_.tokenizer();
      return tokenizer.ok() ? std::string((*tokenizer)->token_bytes(token)) : std::string();
    });
    task.tokens = 0;
    task.text.clear();
    task.repeated = false;
  }
  if (running.streams || running.guard.on) {
    request.on_chunk = [this, job, index](const Chunk& chunk) { token_came(job, index, chunk); };
  }
  request.on_completion = [this, job, index](const Completion& completion) {
    request_done(job, index, completion);
  };
  const auto id = engine_.submit(std::move(request));
  if (id.ok()) {
    task.id = *id;
    return;
  }
  Answer failed;  // it was checked before, so this is memory
  failed.reason = FinishReason::kFailed;
  failed.error = id.status().message();
  finish_task(job, index, std::move(failed));
}

void EngineThread::token_came(JobId job, size_t index, const Chunk& chunk) {
  Running& running = running_.at(job);
  Task& task = running.tasks[index];
  if (task.repeated) return;
  TokenEvent event{
      chunk.token, std::string(chunk.text), chunk.logprob, {chunk.top.begin(), chunk.top.end()}};
  if (task.guard.has_value()) {
    if (task.guard->push(chunk.token)) {
      task.repeated = true;
      task.held = std::move(event);
      repeating_.push_back(task.id);
      return;
    }
    ++task.tokens;
    task.text += event.text;
  }
  if (running.streams) events_.push_back({running.listener, index, std::move(event), nullptr});
}

void EngineThread::request_done(JobId job, size_t index, const Completion& completion) {
  Running& running = running_.at(job);
  Task& task = running.tasks[index];
  Answer answer{completion};
  answer.retries = task.retries;
  if (task.repeated && completion.tokens.size() <= task.tokens) {
    // No token: the text that was held back came with the name of the last one.
    task.repeated = false;
    if (running.streams) {
      events_.push_back({running.listener, index, std::move(task.held), nullptr});
    }
  }
  if (task.repeated && !running.cancelled && completion.reason != FinishReason::kFailed) {
    if (wants_retry(running, task, completion)) {
      retries_.push_back({job, index});
      return;
    }
    answer.repeated = true;
    answer.reason = FinishReason::kStop;
    answer.stop.clear();
    answer.text = task.text;
    answer.tokens.resize(task.tokens);
    answer.logprobs.resize(std::min(answer.logprobs.size(), task.tokens));
    answer.top_logprobs.resize(std::min(answer.top_logprobs.size(), task.tokens));
  }
  finish_task(job, index, std::move(answer));
}

// A greedy answer would be the same again.
bool EngineThread::wants_retry(const Running& running, const Task& task,
                               const Completion& completion) const {
  return task.retries < running.guard.retries_max && completion.reason != FinishReason::kDeadline &&
         task.request.sampling.temperature > 0;
}

void EngineThread::finish_task(JobId job, size_t index, Answer answer) {
  const auto found = running_.find(job);
  CHECK(found != running_.end());
  Running& running = found->second;
  events_.push_back({running.listener, index, {}, std::make_unique<Answer>(std::move(answer))});
  running.tasks[index].done = true;
  const auto is_done = [](const Task& task) { return task.done; };
  if (std::all_of(running.tasks.begin(), running.tasks.end(), is_done)) running_.erase(found);
  std::lock_guard lock(mutex_);
  --open_;
}

// After a step: ends the answers that repeat themselves, starts those that are tried again.
void EngineThread::follow_guard() {
  for (const RequestId id : std::exchange(repeating_, {})) engine_.cancel(id);
  for (const auto& [job, index] : std::exchange(retries_, {})) {
    Task& task = running_.at(job).tasks[index];
    ++task.retries;
    Request request = task.request;
    int64_t& seed = request.sampling.seed;
    if (seed >= 0) {  // otherwise it draws a fresh one anyhow
      const uint64_t other =
          static_cast<uint64_t>(seed) + kSeedStep * static_cast<uint64_t>(task.retries);
      seed = static_cast<int64_t>(other >> 1);
    }
    start_task(job, index, std::move(request));
  }
}

void EngineThread::step() {
  const bool more = engine_.step();
  {
    const Scheduler& scheduler = engine_.scheduler();
    std::lock_guard lock(mutex_);
    load_.running = scheduler.running();
    load_.cache_used = scheduler.reserved_fraction();
    const PrefixTree& prefixes = engine_.scheduler().prefix_tree();
    load_.cached_blocks = prefixes.blocks();
    if (prefixes.store() != nullptr) load_.disk = prefixes.store()->stats();
    load_.stats = scheduler.stats();
    load_.speculation = scheduler.speculation();
    if (!more) load_.leaked_slabs = scheduler.leaked_slabs();
  }
  follow_guard();
  flush();
}

// Everything that a step gave goes over in one task.
void EngineThread::flush() {
  if (events_.empty()) return;
  auto events = std::make_shared<std::vector<Event>>(std::move(events_));
  events_.clear();
  deliver_([events] {
    for (Event& event : *events) {
      if (event.answer == nullptr) {
        event.listener->on_token(event.index, event.token);
      } else {
        event.listener->on_done(event.index, std::move(*event.answer));
      }
    }
  });
}

// Nothing runs any more, and nobody is left waiting.
void EngineThread::fail_all(const std::string& why) {
  Answer failed;
  failed.reason = FinishReason::kFailed;
  failed.error = why;
  std::vector<Job> jobs;
  {
    std::lock_guard lock(mutex_);
    broken_ = true;
    jobs.swap(inbox_);
    open_ = 0;
  }
  for (const auto& [id, running] : running_) {
    for (size_t i = 0; i < running.tasks.size(); ++i) {
      if (running.tasks[i].done) continue;
      events_.push_back({running.listener, i, {}, std::make_unique<Answer>(failed)});
    }
  }
  for (const Job& job : jobs) {
    for (size_t i = 0; i < job.requests.size(); ++i) {
      events_.push_back({job.listener, i, {}, std::make_unique<Answer>(failed)});
    }
  }
  running_.clear();
  flush();
}

}  // namespace kvikk
