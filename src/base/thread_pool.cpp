#include "base/thread_pool.h"

#include <sched.h>

#include "base/check.h"

namespace kvikk {

namespace {

constexpr int kSpinsBeforeYield = 2000;   // a few microseconds
constexpr int kYieldsBeforeSleep = 2000;  // about a millisecond without work

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Entry entry, void* context) {
  if (log_ == nullptr) {
    run_phase(entry, context);
  } else {
    run_logged(entry, context);
  }
}

void ThreadPool::run_logged(Entry entry, void* context) {
  struct Logged {
    Entry entry;
    void* context;
    PhaseLog* log;
  } logged = {entry, context, log_};
  log_->begin(label_);
  run_phase(
      [](void* l, int thread) {
        const Logged& inner = *static_cast<Logged*>(l);
        inner.log->work_begins(thread);
        inner.entry(inner.context, thread);
        inner.log->work_ends(thread);
      },
      &logged);
  log_->end();
}

void ThreadPool::log_begin_alone() {
  log_->begin(label_);
  log_->work_begins(0);
}

void ThreadPool::log_end_alone() {
  log_->work_ends(0);
  log_->end();
}

void ThreadPool::run_phase(Entry entry, void* context) {
  entry_ = entry;
  context_ = context;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
  entry(context, 0);
  for (int spins = 0; running_.load(std::memory_order_acquire) != 0;) {
    pause_cpu();
    if (++spins >= kSpinsBeforeYield) {
      ::sched_yield();
      spins = 0;
    }
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    int spins = 0;
    int yields = 0;
    while (phase_.load(std::memory_order_acquire) == seen) {
      pause_cpu();
      if (++spins < kSpinsBeforeYield) continue;
      spins = 0;
      if (++yields < kYieldsBeforeSleep) {
        ::sched_yield();
      } else {
        phase_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_) return;
    entry_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace kvikk
