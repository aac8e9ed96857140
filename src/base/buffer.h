#pragma once
// Anonymous memory for weights, caches and workspaces: zeroed, 2 MiB aligned, backed by huge pages
// where the system has them (4 KiB pages cost 20-40% of decode speed), taken from the system only
// when touched.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace kvikk {

class Buffer {
 public:
  // Errors: kExhausted when the address space or the memory limit does not allow `bytes`.
  static Result<Buffer> allocate(size_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
};

}  // namespace kvikk
