#pragma once
// A few threads that run tasks in the order in which they came: what would keep the network's
// thread from its clients, such as tokenizing a long prompt.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvikk {

class TaskThreads {
 public:
  TaskThreads(size_t threads, size_t tasks_max);
  // Runs what waits, then ends.
  ~TaskThreads();
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  // False: tasks_max wait already, and this one is not taken.
  bool run(std::function<void()> task);

 private:
  void work();

  const size_t tasks_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvikk
