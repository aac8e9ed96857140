// fork and exec, with everything that could allocate done before the fork.
#include "weights/fetch_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

namespace kvikk {
namespace {

constexpr long kPollNanoseconds = 20 * 1000 * 1000;

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    bool changed = false;
    for (const std::string& change : changes) changed |= change.starts_with(name);
    if (!changed) result.emplace_back(text);
  }
  return result;
}

// In the child: no allocation, no return. `report` carries errno when exec fails.
[[noreturn]] void become(char** arguments, char** environment, int log, int report, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = ::open("/dev/null", O_RDONLY);
  if (input >= 0 && ::dup2(input, 0) == 0 && ::dup2(log, 1) == 1 && ::dup2(log, 2) == 2) {
    ::execvpe(arguments[0], arguments, environment);
  }
  const int error = errno;
  const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(written == sizeof error ? 127 : 126);
}

// Waits for the child, kills its whole group, and collects it.
Result<int> collect(pid_t child, const std::function<bool()>& keep_running) {
  bool stopped = false;
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT | WNOHANG) != 0 &&
        errno != EINTR) {
      return io_error(std::string("waiting for the downloader: ") + std::strerror(errno));
    }
    if (info.si_pid == child) break;
    if (!stopped && keep_running && !keep_running()) {
      stopped = true;
      ::kill(-child, SIGKILL);
    }
    const timespec pause{0, kPollNanoseconds};
    ::nanosleep(&pause, nullptr);
  }
  ::kill(-child, SIGKILL);  // whatever it started itself
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (stopped) return cancelled("stopped");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<int> run_child(const ChildCommand& command) {
  CHECK(!command.arguments.empty());
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = merged_environment(command.environment);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const int log = ::open(command.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) return io_error(command.log_path + ": " + std::strerror(errno));
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    ::close(log);
    return io_error(std::string("no pipe: ") + std::strerror(errno));
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    become(const_cast<char**>(argument_pointers.data()),
           const_cast<char**>(environment_pointers.data()), log, report[1], parent);
  }
  const int fork_error = errno;
  ::close(log);
  ::close(report[1]);
  if (child < 0) {
    ::close(report[0]);
    return io_error(std::string("no new process: ") + std::strerror(fork_error));
  }
  ::setpgid(child, child);  // in both, so that neither waits for the other
  Result<int> code = collect(child, command.keep_running);
  int exec_error = 0;
  const ssize_t got = ::read(report[0], &exec_error, sizeof exec_error);
  ::close(report[0]);
  if (code.ok() && got == sizeof exec_error) {
    const std::string message = arguments[0] + ": " + std::strerror(exec_error);
    return exec_error == ENOENT ? not_found(message) : io_error(message);
  }
  return code;
}

}  // namespace kvikk
