#pragma once
// A file mapped read-only into memory. Pages are read when touched and given back with drop(), so a
// model file never counts twice while its weights are packed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace kvikk {

class MappedFile {
 public:
  // Errors: kNotFound when there is no such file, kIo when it cannot be mapped (a folder, a pipe).
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Gives the whole pages inside [offset, offset + length) back to the system. They read again from
  // the file when touched.
  void drop(size_t offset, size_t length) const;

  // Copies [offset, offset + target.size()) of the file, which maps nothing: a touch of bytes() may
  // map megabytes around them (kernels map the whole folio of the page cache). Safe from any
  // thread. False where the file cannot be read any more, or has become shorter.
  [[nodiscard]] bool read(size_t offset, std::span<uint8_t> target) const;

 private:
  std::string path_;
  int fd_ = -1;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvikk
