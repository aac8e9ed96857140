#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace kvikk {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

Result<Buffer> Buffer::allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return exhausted("an allocation of " + std::to_string(bytes) + " bytes is not possible");
  }
  Buffer buffer;
  buffer.size_ = bytes;
  if (bytes == 0) return buffer;
  // Small buffers keep to normal pages: rounding them to 2 MiB would waste more than it gains.
  const size_t align = bytes >= kHugePage ? kHugePage : size_t{4096};
  buffer.mapping_size_ = (bytes + align - 1) / align * align + (align == kHugePage ? align : 0);
  buffer.mapping_ = ::mmap(nullptr, buffer.mapping_size_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (buffer.mapping_ == MAP_FAILED) {
    buffer.mapping_ = nullptr;
    return exhausted("the system refused " + std::to_string(bytes >> 20) +
                     " MiB of memory: " + std::strerror(errno));
  }
  const auto address = reinterpret_cast<uintptr_t>(buffer.mapping_);
  buffer.data_ = reinterpret_cast<uint8_t*>((address + align - 1) / align * align);
  if (align == kHugePage) ::madvise(buffer.data_, bytes, MADV_HUGEPAGE);
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  return *this;
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_size_);
}

}  // namespace kvikk
