#pragma once
// Files that are written whole or not at all, with errors that name the file and, for a full disk,
// say so (kExhausted) rather than "input/output error".

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace kvikk {

// Closes what it holds.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// `action` on `path` failed with errno `error`.
Status file_error(const std::string& path, const char* action, int error);

Status make_folders(const std::string& path);

Result<FileDescriptor> open_file(const std::string& path, int flags);

Status write_all(int fd, std::span<const uint8_t> bytes, const std::string& path);

// Gives `from` the name `to` in the same file system, its bytes and the name safely on disk.
Status publish_file(const FileDescriptor& file, const std::string& from, const std::string& to);

// Bytes that this user may still write in the file system of `path`.
uint64_t free_bytes(const std::string& path);

inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Writes beside `path`; commit() renames. Whoever reads sees all of it or nothing, and what is not
// committed is removed. Each process writes to a file of its own.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept
      : file_(std::move(other.file_)),
        path_(std::move(other.path_)),
        part_(std::exchange(other.part_, {})) {}
  AtomicFile& operator=(AtomicFile&& other) = delete;
  ~AtomicFile();

  Status write(std::span<const uint8_t> bytes) { return write_all(file_.get(), bytes, part_); }
  Status commit();
  // The same without waiting for the disk: after a crash of the machine a part may be there.
  Status commit_unflushed();

 private:
  AtomicFile(FileDescriptor file, std::string path, std::string part)
      : file_(std::move(file)), path_(std::move(path)), part_(std::move(part)) {}

  FileDescriptor file_;
  std::string path_;
  std::string part_;  // empty after commit()
};

Status write_file_atomically(const std::string& path, std::span<const uint8_t> bytes);

// Removes `path` if it is what a writer left behind unfinished an hour ago.
void remove_old_part(const std::string& path);

// Removes the oldest files of `folder` whose names end with `ending` beyond `kept`, and what
// writers left behind unfinished an hour ago.
void keep_newest(const std::string& folder, std::string_view ending, size_t kept);

}  // namespace kvikk
