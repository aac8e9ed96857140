#pragma once
// When each phase of a thread pool began and ended, and when each thread worked in it: what 'kvikk
// bench --profile' shows. A phase's name is that of the last label before it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvikk {

class PhaseLog {
 public:
  struct Phase {
    const char* label;  // a string literal
    int64_t begin;      // nanoseconds since the log was made
    int64_t end;        // all threads have passed the barrier
  };

  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;  // equal to begin: this thread had no part
  };

  // Keeps the first `phases_max` phases; full() tells that there were more.
  PhaseLog(int threads, size_t phases_max)
      : threads_(threads), phases_max_(phases_max), start_(Clock::now()) {
    phases_.reserve(phases_max);
    pieces_.resize(phases_max * static_cast<size_t>(threads));
  }

  int threads() const { return threads_; }
  const std::vector<Phase>& phases() const { return phases_; }
  const Piece& piece(size_t phase, int thread) const {
    return pieces_[phase * static_cast<size_t>(threads_) + static_cast<size_t>(thread)];
  }
  bool full() const { return phases_.size() == phases_max_; }

  // The pool calls these; one phase runs at a time. work_* may be called by each thread at once.
  void begin(const char* label) {
    open_ = !full();
    if (open_) phases_.push_back({label, now(), 0});
  }
  void work_begins(int thread) {
    if (open_) mine(thread).begin = now();
  }
  void work_ends(int thread) {
    if (open_) mine(thread).end = now();
  }
  void end() {
    if (open_) phases_.back().end = now();
    open_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }
  Piece& mine(int thread) {
    return pieces_[(phases_.size() - 1) * static_cast<size_t>(threads_) +
                   static_cast<size_t>(thread)];
  }

  int threads_;
  size_t phases_max_;
  Clock::time_point start_;
  bool open_ = false;
  std::vector<Phase> phases_;
  std::vector<Piece> pieces_;  // [phases_max, threads]
};

}  // namespace kvikk
