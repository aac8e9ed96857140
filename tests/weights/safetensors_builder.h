#pragma once
// Writes safetensors files, right or wrong on purpose. Shares no code with the reader.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace kvikk {

class SafetensorsBuilder {
 public:
  std::string padding;           // after the header
  std::string extra_entries;     // JSON put at the end of the header, with its comma
  int64_t header_extra = 0;      // added to the announced length
  int64_t data_bytes_extra = 0;  // the file is this much longer (or shorter)

  // A tensor after the last one. `shape` as JSON: "[2, 3]".
  void tensor(const std::string& name, const std::string& type, const std::string& shape,
              const std::string& bytes) {
    entry(name, type, shape, data_.size(), data_.size() + bytes.size());
    data_ += bytes;
  }
  void entry(const std::string& name, const std::string& type, const std::string& shape,
             uint64_t begin, uint64_t end) {
    raw("\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
        std::to_string(begin) + "," + std::to_string(end) + "]}");
  }
  void raw(const std::string& json) { entries_ += (entries_.empty() ? "" : ",") + json; }
  void data(const std::string& bytes) { data_ += bytes; }
  void metadata() { raw("\"__metadata__\":{\"format\":\"pt\"}"); }
  void floats(const std::string& name, const std::vector<float>& values,
              const std::string& shape = "") {
    std::string bytes(values.size() * 4, '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    tensor(name, "F32", shape.empty() ? "[" + std::to_string(values.size()) + "]" : shape, bytes);
  }

  static std::string file(const std::string& header, const std::string& data,
                          int64_t header_extra = 0) {
    const uint64_t length = header.size() + static_cast<uint64_t>(header_extra);
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  }
  std::string build() const {
    std::string bytes = file("{" + entries_ + extra_entries + "}" + padding, data_, header_extra);
    bytes.resize(static_cast<size_t>(static_cast<int64_t>(bytes.size()) + data_bytes_extra));
    return bytes;
  }

 private:
  std::string entries_;
  std::string data_;
};

}  // namespace kvikk
