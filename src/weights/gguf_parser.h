#pragma once
// The parts of the GGUF reader that gguf.cpp puts together: one file's bytes to its contents,
// metadata values to C++ values, and the words of its messages. Not for use outside of this folder.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/gguf.h"

namespace kvikk::gguf {

// Limits. Real files stay far below: the largest vocabularies have 262,144 tokens and about as many
// merges, the largest models some thousand tensors.
inline constexpr uint64_t kKeysMax = 1 << 16;
inline constexpr uint64_t kKeyBytesMax = 65535;  // the format's own
inline constexpr uint64_t kTensorsMax = 1 << 17;
inline constexpr uint64_t kTensorNameBytesMax = 64;  // the format's own
inline constexpr uint32_t kDimensionsMax = 4;        // the format's own
inline constexpr uint64_t kArrayElementsMax = 1 << 24;
inline constexpr uint64_t kArrayStringsMax = 1 << 22;
inline constexpr uint64_t kAlignmentMin = 8;  // the format's own
inline constexpr uint64_t kAlignmentMax = 1 << 24;
inline constexpr uint64_t kShardsMax = 1024;
// No file is larger; sums of an offset and a size below it cannot overflow.
inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 56;

struct Contents {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<StoredTensor> tensors;
};

// Reads header, metadata and tensor table; every span of the result lies inside `bytes`. `path`
// stands in messages.
Result<Contents> parse_file(const std::string& path, std::span<const uint8_t> bytes);

// kUnsupported or kDamaged: what a file that does not begin with "GGUF" seems to be.
Status not_gguf(const std::string& path, std::span<const uint8_t> bytes);

// Values. `path` and `key` stand in messages.
Result<uint64_t> to_uint(const std::string& path, std::string_view key, const GgufValue& value);
Result<float> to_float(const std::string& path, std::string_view key, const GgufValue& value);
Result<bool> to_bool(const std::string& path, std::string_view key, const GgufValue& value);
Result<std::string> to_string(const std::string& path, std::string_view key,
                              const GgufValue& value);
Result<std::vector<std::string>> to_strings(const std::string& path, std::string_view key,
                                            const GgufValue& value);
Result<std::vector<float>> to_floats(const std::string& path, std::string_view key,
                                     const GgufValue& value);
Result<std::vector<int64_t>> to_ints(const std::string& path, std::string_view key,
                                     const GgufValue& value);

// Bytes of one element; 0 for strings and arrays.
size_t value_type_bytes(GgufValue::Type type);

// Words.
std::string grouped(uint64_t number);  // 98362500 -> "98,362,500"
std::string quoted(
    std::string_view text);  // in quotes, control and non-ASCII bytes escaped, cut if long
std::string type_name(const GgufValue& value);  // "u32", "array of string"

}  // namespace kvikk::gguf
