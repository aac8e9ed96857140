#pragma once
// Values out of bytes that may be cut short: never past their end, and no memory for what is not
// there.

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace kvikk {

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : left_(bytes) {}

  // The next `size` bytes; nothing where fewer are left.
  std::optional<std::span<const uint8_t>> take(size_t size) {
    if (size > left_.size()) return std::nullopt;
    const std::span<const uint8_t> taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }

  // A value as it lies in memory. False where the bytes end before.
  template <class T>
  bool get(T& out) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = take(sizeof out);
    if (bytes.has_value()) std::memcpy(&out, bytes->data(), sizeof out);
    return bytes.has_value();
  }

  template <class T>
  bool get_all(size_t count, std::vector<T>& out) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > left_.size() / sizeof(T)) return false;
    out.resize(count);
    const auto bytes = take(count * sizeof(T));
    if (count > 0) std::memcpy(out.data(), bytes->data(), bytes->size());
    return true;
  }

  bool done() const { return left_.empty(); }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace kvikk
