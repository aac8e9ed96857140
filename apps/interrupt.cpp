// The signals are blocked everywhere and read from a descriptor, so there is no handler whose
// restrictions would have to be kept.
#include "interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>

namespace kvikk {
namespace {

// Ctrl-C must end the program within 100 ms; the rest is for the system to take it down.
constexpr int kGraceMilliseconds = 40;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup {};
  const bool nohup = ::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  if (!nohup) sigaddset(&set, SIGHUP);
  return set;
}

void wake(int descriptor) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);
}

}  // namespace

Interrupts::Interrupts() {
  // Both are errors of write() then.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  termios mode{};
  if (::tcgetattr(STDIN_FILENO, &mode) == 0) terminal_ = mode;
  const sigset_t set = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signals_ < 0 || event_ < 0 || stop_ < 0) {
    throw std::system_error(errno, std::generic_category(), "the system gives no descriptor");
  }
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
  int interrupt = SIGINT;
  signal_.compare_exchange_strong(interrupt, 0);
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(event_, &count, sizeof count);
  if (raised()) wake(event_);  // one that ends the program, or came just now
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
    const Policy policy = policy_.load();
    const bool asked = policy == Policy::kDrain || (policy == Policy::kStop && signal == SIGINT);
    if (asked && !again) continue;
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
  // A line editor may have changed it; in the background one must not touch it.
  if (terminal_.has_value() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &*terminal_);
  }
  ::_exit(128 + signal);
}

}  // namespace kvikk
