#pragma once
// Writes GGUF bytes, right or wrong on purpose: each test states the one thing that is wrong.
// Shares no code with the reader.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvikk {

class GgufBuilder {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;       // of the tensor data; write the key yourself
  int64_t extra_keys = 0;        // added to the count in the header
  int64_t extra_tensors = 0;     // likewise
  int64_t data_bytes_extra = 0;  // the file is this much longer (or shorter) than its tensors

  template <class T>
  static std::string number(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static std::string text(std::string_view value) {
    return number<uint64_t>(value.size()) + std::string(value);
  }

  // A key whose type and value are given as the file's bytes.
  void key(std::string_view name, uint32_t type, const std::string& value) {
    keys_ += text(name) + number(type) + value;
    ++key_count_;
  }
  void u16(std::string_view name, uint16_t value) { key(name, 2, number(value)); }
  void u32(std::string_view name, uint32_t value) { key(name, 4, number(value)); }
  void i32(std::string_view name, int32_t value) { key(name, 5, number(value)); }
  void f32(std::string_view name, float value) { key(name, 6, number(value)); }
  void boolean(std::string_view name, uint8_t value) { key(name, 7, number(value)); }
  void string(std::string_view name, std::string_view value) { key(name, 8, text(value)); }
  void strings(std::string_view name, const std::vector<std::string>& values) {
    std::string bytes = number<uint32_t>(8) + number<uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    key(name, 9, bytes);
  }
  template <class T>
  void array(std::string_view name, uint32_t element_type, const std::vector<T>& values) {
    std::string bytes = number(element_type) + number<uint64_t>(values.size());
    for (const T& value : values) bytes += number(value);
    key(name, 9, bytes);
  }

  // A tensor at `offset` of the tensor data, which grows to hold `bytes` there.
  void tensor_at(uint64_t offset, std::string_view name, const std::vector<uint64_t>& shape,
                 uint32_t type, const std::string& bytes) {
    tensors_ += text(name) + number(static_cast<uint32_t>(shape.size()));
    for (const uint64_t extent : shape) tensors_ += number(extent);
    tensors_ += number(type) + number(offset);
    ++tensor_count_;
    if (bytes.empty()) return;
    if (data_.size() < offset + bytes.size()) data_.resize(offset + bytes.size());
    data_.replace(offset, bytes.size(), bytes);
  }
  // A tensor after the last one.
  void tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
              const std::string& bytes) {
    tensor_at((data_.size() + alignment - 1) / alignment * alignment, name, shape, type, bytes);
  }
  // An F32 tensor of zeros.
  void floats(std::string_view name, const std::vector<uint64_t>& shape) {
    uint64_t elements = 1;
    for (const uint64_t extent : shape) elements *= extent;
    tensor(name, shape, 0, std::string(elements * 4, '\0'));
  }

  std::string build() const {
    std::string file = magic + number(version);
    file += number(tensor_count_ + static_cast<uint64_t>(extra_tensors));
    file += number(key_count_ + static_cast<uint64_t>(extra_keys));
    file += keys_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    file += data_;
    file.resize(static_cast<size_t>(static_cast<int64_t>(file.size()) + data_bytes_extra));
    return file;
  }

 private:
  std::string keys_;
  std::string tensors_;
  std::string data_;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace kvikk
