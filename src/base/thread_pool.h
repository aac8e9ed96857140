#pragma once
// A fixed set of threads that run one phase of work at a time, with a barrier at its end. A decode
// step has hundreds of phases of microseconds each, so workers spin, then yield, and only sleep
// when the pool has been idle for a while.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/phase_log.h"

namespace kvikk {

class ThreadPool {
 public:
  // threads >= 1, the calling thread included: ThreadPool(1) starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Names the phases that follow, for a log. `name` must live on.
  void label(const char* name) { label_ = name; }
  // Records the coming phases in `log`, or none. The log must live until it is taken off.
  void set_log(PhaseLog* log) { log_ = log; }

  // Calls f(thread) once on each thread, thread in [0, size()), and returns when all are done.
  template <class F>
  void run(F&& f) {
    using Fn = std::remove_reference_t<F>;
    run_erased([](void* context, int thread) { (*static_cast<Fn*>(context))(thread); },
               const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Calls f(index, thread) for every index in [0, count). Threads take the next index when they are
  // free, in no fixed order: results must not depend on who computes what.
  template <class F>
  void parallel_for(size_t count, F&& f) {
    if (count == 0) return;
    if (threads_ == 1 || count == 1) {
      if (log_ != nullptr) log_begin_alone();
      for (size_t i = 0; i < count; ++i) f(i, 0);
      if (log_ != nullptr) log_end_alone();
      return;
    }
    next_.store(0, std::memory_order_relaxed);
    run([&](int thread) {
      for (size_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next_.fetch_add(1, std::memory_order_relaxed)) {
        f(i, thread);
      }
    });
  }

 private:
  using Entry = void (*)(void* context, int thread);
  void run_erased(Entry entry, void* context);
  void run_logged(Entry entry, void* context);
  void run_phase(Entry entry, void* context);
  void log_begin_alone();
  void log_end_alone();
  void work(int thread);

  int threads_;
  std::vector<std::thread> workers_;
  Entry entry_ = nullptr;
  void* context_ = nullptr;
  const char* label_ = "";
  PhaseLog* log_ = nullptr;
  bool stop_ = false;
  alignas(128) std::atomic<uint32_t> phase_{0};  // odd or even: a new value starts a phase
  alignas(128) std::atomic<int> running_{0};     // workers that have not finished this phase
  alignas(128) std::atomic<size_t> next_{0};     // next index of parallel_for
};

}  // namespace kvikk
