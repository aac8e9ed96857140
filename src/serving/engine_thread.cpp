#include "serving/engine_thread.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace kvikk {

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
                                   std::shared_ptr<JobListener> listener, bool streams) {
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
    inbox_.push_back({id, std::move(requests), std::move(listener), streams});
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
    for (const RequestId request : found->second.ids) engine_.cancel(request);
  }
  return !stop || !running_.empty();
}

void EngineThread::start_job(Job job) {
  Running& running = running_[job.id];
  running.listener = job.listener;
  running.done.assign(job.requests.size(), false);
  for (size_t i = 0; i < job.requests.size(); ++i) {
    Request& request = job.requests[i];
    if (job.streams) {
      request.on_chunk = [this, listener = job.listener, i](const Chunk& chunk) {
        events_.push_back({listener,
                           i,
                           {chunk.token,
                            std::string(chunk.text),
                            chunk.logprob,
                            {chunk.top.begin(), chunk.top.end()}},
                           nullptr});
      };
    }
    request.on_completion = [this, id = job.id, listener = job.listener, i](const Completion& c) {
      request_done(id, listener, i, c);
    };
    const auto id = engine_.submit(std::move(request));
    if (id.ok()) {
      running.ids.push_back(*id);
      continue;
    }
    Completion failed;  // it was checked before, so this is memory
    failed.reason = FinishReason::kFailed;
    failed.error = id.status().message();
    request_done(job.id, job.listener, i, failed);
  }
}

void EngineThread::request_done(JobId job, const std::shared_ptr<JobListener>& listener,
                                size_t index, const Completion& completion) {
  events_.push_back({listener, index, {}, std::make_unique<Completion>(completion)});
  const auto found = running_.find(job);
  CHECK(found != running_.end());
  std::vector<bool>& done = found->second.done;
  done[index] = true;
  if (std::find(done.begin(), done.end(), false) == done.end()) running_.erase(found);
  std::lock_guard lock(mutex_);
  --open_;
}

void EngineThread::step() {
  const bool more = engine_.step();
  {
    const Scheduler& scheduler = engine_.scheduler();
    std::lock_guard lock(mutex_);
    load_.running = scheduler.running();
    load_.cache_used = scheduler.reserved_fraction();
    load_.cached_blocks = engine_.scheduler().prefix_tree().blocks();
    load_.stats = scheduler.stats();
    load_.speculation = scheduler.speculation();
    if (!more) load_.leaked_slabs = scheduler.leaked_slabs();
  }
  flush();
}

// Everything that a step gave goes over in one task.
void EngineThread::flush() {
  if (events_.empty()) return;
  auto events = std::make_shared<std::vector<Event>>(std::move(events_));
  events_.clear();
  deliver_([events] {
    for (Event& event : *events) {
      if (event.completion == nullptr) {
        event.listener->on_token(event.index, event.token);
      } else {
        event.listener->on_done(event.index, std::move(*event.completion));
      }
    }
  });
}

// Nothing runs any more, and nobody is left waiting.
void EngineThread::fail_all(const std::string& why) {
  Completion failed;
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
    for (size_t i = 0; i < running.done.size(); ++i) {
      if (running.done[i]) continue;
      events_.push_back({running.listener, i, {}, std::make_unique<Completion>(failed)});
    }
  }
  for (const Job& job : jobs) {
    for (size_t i = 0; i < job.requests.size(); ++i) {
      events_.push_back({job.listener, i, {}, std::make_unique<Completion>(failed)});
    }
  }
  running_.clear();
  flush();
}

}  // namespace kvikk
