#include "serving/task_threads.h"

#include <utility>

namespace kvikk {

TaskThreads::TaskThreads(size_t threads, size_t tasks_max) : tasks_max_(tasks_max) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

TaskThreads::~TaskThreads() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TaskThreads::run(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (tasks_.size() >= tasks_max_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void TaskThreads::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace kvikk
