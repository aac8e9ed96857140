// Standard streams by their descriptors: stdio would hide when an error happened, and which.
#include "shell.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvikk {
namespace {

constexpr char kClosedOutput[] = "standard output is closed";
constexpr int kStdinPatienceMs = 2000;
constexpr size_t kReadBytes = size_t{1} << 16;

// 0, or the errno of what went wrong.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written == 0) {
      return EIO;
    } else if (errno == EAGAIN) {
      pollfd wait = {fd, POLLOUT, 0};
      ::poll(&wait, 1, 100);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Status write_error(const std::string& name, int error) {
  return io_error(name + " cannot be written: " + std::strerror(error));
}

Status read_error(const std::string& name, int error) {
  const std::string message = name + ": " + std::strerror(error);
  return error == ENOENT ? not_found(message) : io_error(message);
}

}  // namespace

Shell::StandardStreams::StandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Standard output becomes one that cannot be written: a result must not vanish silently.
    const int flags = fd == 1 ? O_RDONLY : O_RDWR;
    [[maybe_unused]] const int opened = ::open("/dev/null", flags);
  }
}

Shell::Shell()
    : stdin_terminal_(::isatty(0) == 1),
      stdout_terminal_(::isatty(1) == 1),
      stderr_terminal_(::isatty(2) == 1) {}

Status Shell::print(std::string_view text) {
  const int error = write_all(1, text);
  if (error == EPIPE) return io_error(kClosedOutput);
  return error == 0 ? ok_status() : write_error("standard output", error);
}

Status Shell::print_model_text(std::string_view text) {
  return stdout_terminal_ ? print(printable(text)) : print(text);
}

void Shell::note(std::string_view text) { message("kvikk: " + std::string(text) + "\n"); }

void Shell::message(std::string_view text) {
  static_cast<void>(write_all(2, text));  // nobody is left to hear that it failed
}

Status Shell::go_on() const { return interrupts_.raised() ? cancelled("stopped") : ok_status(); }

bool Shell::wait_for_stdin(int timeout_ms) {
  for (;;) {
    pollfd wait[2] = {{0, POLLIN, 0}, {interrupts_.event(), POLLIN, 0}};
    const int ready = ::poll(wait, 2, timeout_ms);
    if (interrupts_.raised() || ready == 0) return false;
    if (ready > 0 && wait[0].revents != 0) return true;
  }
}

Result<std::string> Shell::read_some_stdin() {
  char block[kReadBytes];
  for (;;) {
    if (!wait_for_stdin()) return cancelled("stopped");
    const ssize_t got = ::read(0, block, sizeof block);
    if (got >= 0) return std::string(block, static_cast<size_t>(got));
    if (errno != EINTR && errno != EAGAIN) return read_error("standard input", errno);
  }
}

Result<std::string> Shell::read_stdin(size_t bytes_max) {
  if (!wait_for_stdin(kStdinPatienceMs) && !interrupts_.raised()) {
    note("waiting for standard input (</dev/null means that there is none)");
  }
  std::string text;
  for (;;) {
    TRY_ASSIGN(const std::string part, read_some_stdin());
    if (part.empty()) return text;
    text += part;
    if (text.size() > bytes_max) {
      return exhausted("standard input has more than " + std::to_string(bytes_max) + " bytes");
    }
  }
}

std::string printable(std::string_view text) {
  std::string safe;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F: terminals take them for escape sequences too.
    const bool c1 = byte == 0xC2 && at + 1 < text.size() &&
                    (static_cast<unsigned char>(text[at + 1]) & 0xE0) == 0x80;
    const size_t bytes = c1 ? 2 : 1;
    safe += c0 || c1 ? std::string_view("\uFFFD") : text.substr(at, bytes);
    at += bytes;
  }
  return safe;
}

bool is_closed_output(const Status& status) { return status.message() == kClosedOutput; }

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return read_error(path, errno);
  std::string text;
  char block[kReadBytes];
  for (;;) {
    const ssize_t got = ::read(fd, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      ::close(fd);
      return read_error(path, error);
    }
    text.append(block, static_cast<size_t>(got));
    if (got == 0 || text.size() > bytes_max) break;
  }
  ::close(fd);
  if (text.size() > bytes_max) {
    return exhausted(path + ": has more than " + std::to_string(bytes_max) + " bytes");
  }
  return text;
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

Result<OutputFile> OutputFile::open(const std::string& path,
                                    const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (!is_same_file(path, input)) continue;
    return invalid_argument(path + ": is also read here, as " + input + "; write to another file");
  }
  OutputFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  file.created_ = file.descriptor_ >= 0;
  if (!file.created_ && errno == EEXIST) {
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  }
  if (file.descriptor_ < 0) return write_error(path, errno);
  return file;
}

Result<std::unique_ptr<OutputFile>> OutputFile::open_if_named(
    const std::string& path, const std::vector<std::string>& inputs) {
  if (path.empty()) return std::unique_ptr<OutputFile>();
  TRY_ASSIGN(OutputFile file, open(path, inputs));
  return std::make_unique<OutputFile>(std::move(file));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      created_(other.created_),
      started_(other.started_) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (created_ && !started_) ::unlink(path_.c_str());
}

Status OutputFile::start() {
  if (started_) return ok_status();
  started_ = true;
  struct stat info {};
  if (::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode) &&
      ::ftruncate(descriptor_, 0) != 0) {
    return write_error(path_, errno);
  }
  return ok_status();
}

Status OutputFile::write(std::string_view bytes) {
  TRY(start());
  const int error = write_all(descriptor_, bytes);
  return error == 0 ? ok_status() : write_error(path_, error);
}

Status OutputFile::write_at(size_t offset, std::string_view bytes) {
  TRY(start());
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return write_error(path_, errno);
    offset += static_cast<size_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return ok_status();
}

Status OutputFile::close() {
  TRY(start());
  const int fd = std::exchange(descriptor_, -1);
  return ::close(fd) == 0 ? ok_status() : write_error(path_, errno);
}

Result<LineReader> LineReader::open(Shell& shell, const std::string& path) {
  LineReader reader(shell);
  reader.owned_ = path != "-";
  reader.name_ = reader.owned_ ? path : "standard input";
  reader.descriptor_ = reader.owned_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : 0;
  if (reader.descriptor_ < 0) return read_error(path, errno);
  return reader;
}

LineReader::LineReader(LineReader&& other) noexcept
    : shell_(other.shell_),
      name_(std::move(other.name_)),
      descriptor_(other.descriptor_),
      owned_(std::exchange(other.owned_, false)),
      ended_(other.ended_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      scanned_(other.scanned_),
      line_(other.line_) {}

LineReader::~LineReader() {
  if (owned_) ::close(descriptor_);
}

std::string LineReader::where() const { return name_ + ":" + std::to_string(line_); }

Result<bool> LineReader::next(std::string& line) {
  for (;;) {
    const size_t end = buffer_.find('\n', scanned_);
    if (end != std::string::npos || (ended_ && begin_ < buffer_.size())) {
      const size_t stop = std::min(end, buffer_.size());
      line.assign(buffer_, begin_, stop - begin_);
      begin_ = scanned_ = std::min(stop + 1, buffer_.size());
      ++line_;
      return true;
    }
    if (ended_) return false;
    buffer_.erase(0, begin_);
    begin_ = 0;
    scanned_ = buffer_.size();
    if (buffer_.size() > kLineBytesMax) {
      ++line_;
      return exhausted(where() + ": the line has more than " + std::to_string(kLineBytesMax) +
                       " bytes");
    }
    pollfd wait[2] = {{descriptor_, POLLIN, 0}, {shell_->interrupts().event(), POLLIN, 0}};
    ::poll(wait, 2, -1);
    TRY(shell_->go_on());
    char block[kReadBytes];
    const ssize_t got = ::read(descriptor_, block, sizeof block);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return read_error(name_, errno);
    ended_ = got == 0;
    buffer_.append(block, static_cast<size_t>(got));
  }
}

}  // namespace kvikk
