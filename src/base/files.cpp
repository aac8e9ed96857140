#include "base/files.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace kvikk {
namespace {

constexpr char kPart[] = ".part";

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Status file_error(const std::string& path, const char* action, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return exhausted(
        path + ": the disk is full, or the limit of this user is reached: " + std::strerror(error));
  }
  return io_error(path + ": " + action + ": " + std::strerror(error));
}

Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? file_error(path, "the folder cannot be made", error.value()) : ok_status();
}

Result<FileDescriptor> open_file(const std::string& path, int flags) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (file.get() < 0) return file_error(path, "cannot be opened", errno);
  return file;
}

Status write_all(int fd, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_error(path, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ok_status();
}

Status publish_file(const FileDescriptor& file, const std::string& from, const std::string& to) {
  if (::fsync(file.get()) != 0) return file_error(from, "cannot be written", errno);
  if (::rename(from.c_str(), to.c_str()) != 0) return file_error(to, "cannot be named", errno);
  TRY_ASSIGN(const FileDescriptor folder, open_file(folder_of(to), O_RDONLY | O_DIRECTORY));
  if (::fsync(folder.get()) != 0) return file_error(to, "cannot be named", errno);
  return ok_status();
}

uint64_t free_bytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return UINT64_MAX;  // writing will tell
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  std::string part = path + "." + std::to_string(::getpid()) + kPart;
  TRY_ASSIGN(FileDescriptor file, open_file(part, O_WRONLY | O_CREAT | O_TRUNC));
  return AtomicFile(std::move(file), path, std::move(part));
}

AtomicFile::~AtomicFile() {
  if (!part_.empty()) ::unlink(part_.c_str());
}

Status AtomicFile::commit() {
  TRY(publish_file(file_, part_, path_));
  part_.clear();
  return ok_status();
}

Status AtomicFile::commit_unflushed() {
  if (::rename(part_.c_str(), path_.c_str()) != 0) {
    return file_error(path_, "cannot be named", errno);
  }
  part_.clear();
  return ok_status();
}

Status write_file_atomically(const std::string& path, std::span<const uint8_t> bytes) {
  TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TRY(file.write(bytes));
  return file.commit();
}

void remove_old_part(const std::string& path) {
  constexpr std::chrono::hours kPartAgeMax(1);
  if (!path.ends_with(kPart)) return;
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error || std::filesystem::file_time_type::clock::now() - time <= kPartAgeMax) return;
  std::filesystem::remove(path, error);
}

void keep_newest(const std::string& folder, std::string_view ending, size_t kept) {
  constexpr size_t kEntriesMax = 1000;
  using Time = std::filesystem::file_time_type;
  std::vector<std::pair<Time, std::filesystem::path>> files;
  std::error_code error;
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (++entries > kEntriesMax) break;
    const std::string name = entry.path().filename();
    const Time time = entry.last_write_time(error);
    if (error) continue;
    if (name.ends_with(ending)) files.emplace_back(time, entry.path());
    remove_old_part(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kept < files.size(); ++i) {
    std::filesystem::remove(files[i].second, error);
  }
}

}  // namespace kvikk
