// Metadata values: from the bytes that the parser found in bounds to C++ values, and how messages
// name them. Strings and arrays are expanded only here, when somebody asks.

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "weights/gguf_parser.h"

namespace kvikk::gguf {
namespace {

using Type = GgufValue::Type;

constexpr size_t kQuotedBytesMax = 80;

struct ValueTypeRow {
  const char* name;
  size_t bytes;
};

constexpr ValueTypeRow kValueTypes[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

template <class T>
T load(const uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

bool is_integer(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kI8:
    case Type::kU16:
    case Type::kI16:
    case Type::kU32:
    case Type::kI32:
    case Type::kU64:
    case Type::kI64:
      return true;
    default:
      return false;
  }
}

// An integer of any width as its 64 bits, sign-extended if its type has a sign.
uint64_t load_integer(Type type, const uint8_t* source) {
  switch (type) {
    case Type::kU8:
      return load<uint8_t>(source);
    case Type::kI8:
      return static_cast<uint64_t>(static_cast<int64_t>(load<int8_t>(source)));
    case Type::kU16:
      return load<uint16_t>(source);
    case Type::kI16:
      return static_cast<uint64_t>(static_cast<int64_t>(load<int16_t>(source)));
    case Type::kU32:
      return load<uint32_t>(source);
    case Type::kI32:
      return static_cast<uint64_t>(static_cast<int64_t>(load<int32_t>(source)));
    default:
      return load<uint64_t>(source);
  }
}

bool is_signed(Type type) {
  return type == Type::kI8 || type == Type::kI16 || type == Type::kI32 || type == Type::kI64;
}

Status wrong(const std::string& path, std::string_view key, const std::string& what) {
  return damaged(path + ": key " + quoted(key) + " " + what);
}

Status wrong_type(const std::string& path, std::string_view key, const GgufValue& value,
                  const char* wanted) {
  return wrong(path, key, "is of type " + type_name(value) + "; it must be " + wanted);
}

std::string element(uint64_t index) { return "has, as element " + grouped(index) + ", "; }

}  // namespace

size_t value_type_bytes(Type type) { return kValueTypes[static_cast<size_t>(type)].bytes; }

std::string type_name(const GgufValue& value) {
  const char* element_name = kValueTypes[static_cast<size_t>(value.element_type)].name;
  return value.type == Type::kArray ? std::string("array of ") + element_name : element_name;
}

std::string grouped(uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string result;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

std::string quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string result = "'";
  for (const char c : text.substr(0, kQuotedBytesMax)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      result += c;
    } else {
      result += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return result + (text.size() > kQuotedBytesMax ? "..." : "") + "'";
}

Result<uint64_t> to_uint(const std::string& path, std::string_view key, const GgufValue& value) {
  if (!is_integer(value.type)) return wrong_type(path, key, value, "an integer");
  const uint64_t bits = load_integer(value.type, value.bytes.data());
  if (is_signed(value.type) && static_cast<int64_t>(bits) < 0) {
    return wrong(path, key,
                 "is " + std::to_string(static_cast<int64_t>(bits)) + "; it must not be negative");
  }
  return bits;
}

Result<float> to_float(const std::string& path, std::string_view key, const GgufValue& value) {
  float number = 0;
  if (value.type == Type::kF32) {
    number = load<float>(value.bytes.data());
  } else if (value.type == Type::kF64) {
    number = static_cast<float>(load<double>(value.bytes.data()));
  } else {
    return wrong_type(path, key, value, "f32");
  }
  if (!std::isfinite(number)) return wrong(path, key, "is not a finite number");
  return number;
}

Result<bool> to_bool(const std::string& path, std::string_view key, const GgufValue& value) {
  if (value.type != Type::kBool) return wrong_type(path, key, value, "bool");
  if (value.bytes[0] > 1) {
    return wrong(path, key,
                 "is a bool of value " + grouped(value.bytes[0]) + "; it must be 0 or 1");
  }
  return value.bytes[0] == 1;
}

Result<std::string> to_string(const std::string& path, std::string_view key,
                              const GgufValue& value) {
  if (value.type != Type::kString) return wrong_type(path, key, value, "string");
  const auto text = value.bytes.subspan(sizeof(uint64_t));
  return std::string(text.begin(), text.end());
}

Result<std::vector<std::string>> to_strings(const std::string& path, std::string_view key,
                                            const GgufValue& value) {
  if (value.type != Type::kArray || value.element_type != Type::kString) {
    return wrong_type(path, key, value, "array of string");
  }
  std::vector<std::string> strings;
  strings.reserve(value.count);
  const uint8_t* at = value.bytes.data();
  for (uint64_t i = 0; i < value.count; ++i) {  // the parser has checked every length
    const auto length = load<uint64_t>(at);
    at += sizeof(uint64_t);
    strings.emplace_back(reinterpret_cast<const char*>(at), length);
    at += length;
  }
  return strings;
}

Result<std::vector<float>> to_floats(const std::string& path, std::string_view key,
                                     const GgufValue& value) {
  const bool wide = value.element_type == Type::kF64;
  if (value.type != Type::kArray || (value.element_type != Type::kF32 && !wide)) {
    return wrong_type(path, key, value, "array of f32");
  }
  std::vector<float> floats(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const uint8_t* at = value.bytes.data() + i * (wide ? sizeof(double) : sizeof(float));
    floats[i] = wide ? static_cast<float>(load<double>(at)) : load<float>(at);
    if (std::isnan(floats[i])) return wrong(path, key, element(i) + "NaN");
  }
  return floats;
}

Result<std::vector<int64_t>> to_ints(const std::string& path, std::string_view key,
                                     const GgufValue& value) {
  const bool bools = value.element_type == Type::kBool;
  if (value.type != Type::kArray || (!is_integer(value.element_type) && !bools)) {
    return wrong_type(path, key, value, "array of integers");
  }
  const size_t size = value_type_bytes(value.element_type);
  std::vector<int64_t> ints(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const uint8_t* at = value.bytes.data() + i * size;
    const uint64_t bits = bools ? *at : load_integer(value.element_type, at);
    if (bools && bits > 1) return wrong(path, key, element(i) + "a bool that is neither 0 nor 1");
    if (!is_signed(value.element_type) && bits > INT64_MAX) {
      return wrong(path, key, element(i) + grouped(bits) + "; the most is " + grouped(INT64_MAX));
    }
    ints[i] = static_cast<int64_t>(bits);
  }
  return ints;
}

}  // namespace kvikk::gguf
