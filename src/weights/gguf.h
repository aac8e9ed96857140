#pragma once
// GGUF, the model file of llama.cpp: a header of key-value metadata, a table of tensors, then the
// tensors' bytes. Version 2 and 3, little-endian, one file or a split set
// (NAME-00001-of-00003.gguf). Everything in the file is untrusted: sizes are checked against the
// file before anything is allocated.
//
// Layout: "GGUF", version u32, tensor count u64, key count u64; keys (name, value type u32, value);
// tensors (name, dimension count u32, dimensions u64, type u32, offset u64); padding to
// general.alignment (32 unless given); tensor data, where the offsets count from. A string is its
// length as u64, then bytes.
//
// The file must not shrink while it is open: the system then answers a read of the lost pages with
// SIGBUS, which no check here can turn into a Status. (Growing or replacing it by rename is
// harmless.)

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "weights/tensor_source.h"

namespace kvikk {

// A metadata value. Strings and arrays point into the mapped file; nothing is copied.
struct GgufValue {
  enum class Type : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64,
  };
  Type type;
  Type element_type;               // of an array; otherwise the same as type
  uint64_t count = 1;              // elements of an array
  std::span<const uint8_t> bytes;  // as the file stores it: a string with its length, an array
                                   // without its element type and count
};

using GgufTensor = StoredTensor;

class GgufFile final : public TensorSource {
 public:
  // Opens `path`, or the whole set if `path` is the first file of one. Reads no tensor data.
  // Errors: kNotFound (also a missing file of a set), kInvalidArgument (a later file of a set),
  // kIo, kDamaged (with the offset and what was expected there), kUnsupported (not a GGUF file:
  // says what it looks like; big-endian, version 1, a tensor type that cannot be read: names the
  // tensor and the type).
  static Result<GgufFile> open(const std::string& path);

  // The same for a file already in memory, which must outlive the result; `name` stands in
  // messages. Not for split sets. For tests and the fuzzer.
  static Result<GgufFile> parse(const std::string& name, std::span<const uint8_t> bytes);

  const std::string& path() const override;
  size_t file_count() const override { return shards_.size(); }
  std::span<const StoredTensor> tensors() const override;
  const StoredTensor* find_tensor(std::string_view name) const override;
  Status validate_blocks(const StoredTensor& tensor, uint64_t first_element,
                         uint64_t elements) const override;
  const MappedFile* file_of(const StoredTensor& tensor) const override;

  uint32_t version() const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const;
  const MappedFile& shard(size_t index) const;  // empty when it was parsed from memory

  bool has(std::string_view key) const;
  // Each returns kDamaged naming the file, the key, the type found and the type wanted, or that the
  // key is missing. Integers of any width convert when the value fits.
  Result<uint64_t> get_uint(std::string_view key) const;
  Result<float> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<std::vector<std::string>> get_strings(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;
  Result<std::vector<int64_t>> get_ints(std::string_view key) const;  // also bool arrays

 private:
  Result<const GgufValue*> find_value(std::string_view key) const;
  Status load_rest_of_set(uint64_t count);
  Status add_tensors(std::vector<StoredTensor> tensors);

  std::string path_;
  std::vector<std::shared_ptr<const MappedFile>> shards_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
  uint32_t version_ = 0;
};

}  // namespace kvikk
