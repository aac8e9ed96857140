#pragma once
// Ctrl-C and termination. A thread of its own waits for the signals, so no work in progress can
// delay them: commands ask raised() at every step and end in good order, and one that does not come
// back within the grace period is ended from here. SIGINT works even where a shell started the
// program in the background with it ignored: whoever sends it means it.

#include <termios.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace kvikk {

class Interrupts {
 public:
  // Blocks the signals in this thread and all later ones: make it before any other thread. Throws
  // std::system_error when the system gives no descriptor or no thread.
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  enum class Policy {
    kExit,   // the program ends, if need be by force
    kStop,   // what runs is asked to stop; a second signal ends the program
    kDrain,  // the same, also for what asks the program to end
  };
  void set_policy(Policy policy) { policy_.store(policy); }

  bool raised() const { return signal_.load() != 0; }
  int exit_code() const { return 128 + signal_.load(); }
  // Readable while raised: for poll() beside standard input.
  int event() const { return event_; }
  // The program did all that a signal asked for: it ends as one that was done.
  void fulfilled() { signal_.store(0); }
  // Ctrl-C was dealt with. What asks the program to end stays raised.
  void clear();

 private:
  friend class LastWords;
  void watch();
  void end_by_force(int signal);

  std::atomic<int> signal_{0};
  std::atomic<Policy> policy_{Policy::kExit};
  int signals_ = -1;                 // signalfd
  int event_ = -1;                   // eventfd
  int stop_ = -1;                    // eventfd: the program is done
  std::optional<termios> terminal_;  // how standard input was found
  std::mutex mutex_;
  std::function<void()> last_words_;
  std::thread thread_;
};

// While it lives, an interrupt asks what runs to stop instead of ending the program.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(Interrupts& interrupts,
                           Interrupts::Policy policy = Interrupts::Policy::kStop)
      : interrupts_(interrupts) {
    interrupts_.set_policy(policy);
  }
  ~StopOnInterrupt() { interrupts_.set_policy(Interrupts::Policy::kExit); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  Interrupts& interrupts_;
};

// While it lives, `words` is called before the program is ended by force, to print what there is.
// On a thread of its own.
class LastWords {
 public:
  LastWords(Interrupts& interrupts, std::function<void()> words) : interrupts_(interrupts) {
    set(std::move(words));
  }
  ~LastWords() { set({}); }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  void set(std::function<void()> words) {
    std::lock_guard lock(interrupts_.mutex_);
    interrupts_.last_words_ = std::move(words);
  }

  Interrupts& interrupts_;
};

}  // namespace kvikk
