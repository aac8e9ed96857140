// The signals are blocked everywhere and read from a descriptor, so there is no handler whose
// restrictions would have to be kept.
#include "interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace kvikk {
namespace {

// Ctrl-C must end the program within 100 ms; the rest is for the system to take it down.
constexpr int kGraceMilliseconds = 40;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

void wake(int descriptor) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);
}

}  // namespace

Interrupts::Interrupts() {
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { watch(); });
}

Interrupts::~Interrupts() {
  wake(stop_);
  if (thread_.joinable()) thread_.join();
  ::close(signals_);
  ::close(event_);
  ::close(stop_);
}

void Interrupts::clear() {
  signal_.store(0);
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(event_, &count, sizeof count);
}

void Interrupts::watch() {
  for (;;) {
    pollfd wait[2] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (::poll(wait, 2, -1) < 0) continue;
    if (wait[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    const bool again = signal_.exchange(signal) != 0;
    wake(event_);
    if (policy_.load() == Policy::kStop && signal == SIGINT && !again) continue;
    pollfd done = {stop_, POLLIN, 0};
    if (::poll(&done, 1, kGraceMilliseconds) == 1) return;
    end_by_force(signal);
  }
}

void Interrupts::end_by_force(int signal) {
  {
    std::lock_guard lock(mutex_);
    if (last_words_) last_words_();
  }
  ::_exit(128 + signal);
}

}  // namespace kvikk
