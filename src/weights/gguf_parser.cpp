// Reads one GGUF file. Everything is checked before it is believed: a count against the bytes that
// are left, a product against overflow, an offset against the file. Cost and memory follow the
// header, not the tensors, whose bytes are never touched.

#include "weights/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "weights/gguf_types.h"

namespace kvikk::gguf {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kValueTypes = 13;
constexpr char kDamagedHint[] =
    ". The file is damaged or its download is incomplete: fetch it again.";

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + grouped(shape[i]);
  return text + "]";
}

class Parser {
 public:
  Parser(const std::string& path, std::span<const uint8_t> bytes) : path_(path), bytes_(bytes) {}

  Result<Contents> parse() {
    TRY(read_header());
    for (uint64_t i = 0; i < key_count_; ++i) TRY(read_key(i));
    TRY(read_alignment());
    contents_.tensors.reserve(tensor_count_);
    offsets_.reserve(tensor_count_);
    for (uint64_t i = 0; i < tensor_count_; ++i) TRY(read_tensor(i));
    TRY(place_tensors());
    TRY(check_names_differ());
    return std::move(contents_);
  }

 private:
  Status read_header();
  Status check_version(uint32_t version) const;
  Status check_count(const char* what, uint64_t count, uint64_t bytes_each, uint64_t limit) const;
  Status read_key(uint64_t index);
  Status read_value(const std::string& key, GgufValue& value);
  Status read_array(const std::string& key, GgufValue& value);
  Status skip_string(const std::string& whose);
  Status read_name(const std::string& what, uint64_t bytes_max, std::string& name);
  Status read_alignment();
  Status read_tensor(uint64_t index);
  Status read_shape(StoredTensor& tensor);
  Status tensor_bytes(const StoredTensor& tensor, uint64_t& bytes) const;
  Status place_tensors();
  Status past_end(size_t tensor, uint64_t end, uint64_t file_end, bool in_sequence) const;
  Status check_overlaps() const;
  Status check_names_differ() const;

  uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  bool take(T& value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  Status damage(const std::string& what) const { return damaged(path_ + ": " + what); }
  Status ends_in(const std::string& what) const {
    return damage("ends after " + grouped(bytes_.size()) + " bytes, within " + what + kDamagedHint);
  }
  static std::string at(uint64_t offset) { return " (at byte " + grouped(offset) + ")"; }

  const std::string& path_;
  const std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;  // never past bytes_.size()
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  Contents contents_;
  std::vector<uint64_t> offsets_;  // of each tensor, from the start of the tensor data
};

Status Parser::read_header() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
    return not_gguf(path_, bytes_);
  at_ = 4;
  uint32_t version = 0;
  if (!take(version)) return ends_in("the version");
  TRY(check_version(version));
  contents_.version = version;
  if (!take(tensor_count_) || !take(key_count_)) return ends_in("the header");
  // The least that a key takes: name length, one letter, type, one byte; a tensor: name length, one
  // letter, dimension count, one dimension, type, offset.
  TRY(check_count("keys", key_count_, 8 + 1 + 4 + 1, kKeysMax));
  return check_count("tensors", tensor_count_, 8 + 1 + 4 + 8 + 4 + 8, kTensorsMax);
}

Status Parser::check_version(uint32_t version) const {
  if (version == 2 || version == 3) return ok_status();
  const std::string readable = "; versions 2 and 3 can be read";
  if (version == 1) {
    return unsupported(path_ + ": is GGUF version 1, in use for a few weeks of 2023" + readable +
                       ". Convert the model again, or fetch a newer file.");
  }
  if (version != 0 && (version & 0xFFFF) == 0) {
    return unsupported(path_ +
                       ": is a big-endian GGUF file; only little-endian ones can be read. Fetch" +
                       " the usual file, or convert the model without --bigendian.");
  }
  if (version == 0 || version > 1000) {
    return damage("has version " + grouped(version) + " at byte 4" + readable + kDamagedHint);
  }
  return unsupported(path_ + ": is GGUF version " + grouped(version) + readable);
}

Status Parser::check_count(const char* what, uint64_t count, uint64_t bytes_each,
                           uint64_t limit) const {
  if (count > left() / bytes_each) {
    return damage("announces " + grouped(count) + " " + what + ", but the " +
                  grouped(bytes_.size()) + " bytes of the file have room for " +
                  grouped(left() / bytes_each) + " at most" + kDamagedHint);
  }
  if (count > limit) {
    return exhausted(path_ + ": has " + grouped(count) + " " + what + "; the limit is " +
                     grouped(limit));
  }
  return ok_status();
}

Status Parser::read_name(const std::string& what, uint64_t bytes_max, std::string& name) {
  const uint64_t start = at_;
  uint64_t length = 0;
  if (!take(length)) return ends_in("the name of " + what);
  if (length == 0) return damage(what + " has an empty name" + at(start));
  if (length > bytes_max) {
    return damage(what + " has a name of " + grouped(length) + " bytes" + at(start) +
                  "; the format allows " + grouped(bytes_max));
  }
  if (length > left()) return ends_in("the name of " + what);
  name.assign(reinterpret_cast<const char*>(bytes_.data() + at_), length);
  at_ += length;
  return ok_status();
}

Status Parser::read_key(uint64_t index) {
  const uint64_t start = at_;
  std::string key;
  TRY(read_name("key " + grouped(index + 1) + " of " + grouped(key_count_), kKeyBytesMax, key));
  GgufValue value{};
  TRY(read_value(key, value));
  if (!contents_.metadata.emplace(key, value).second) {
    return damage("key " + quoted(key) + " is there twice" + at(start) +
                  "; each key may occur once");
  }
  return ok_status();
}

Status Parser::read_value(const std::string& key, GgufValue& value) {
  const uint64_t start = at_;
  uint32_t type = 0;
  if (!take(type)) return ends_in("the type of key " + quoted(key));
  if (type >= kValueTypes) {
    return damage("key " + quoted(key) + " has value type " + grouped(type) + at(start) +
                  "; the format has 0 to 12");
  }
  value.type = static_cast<GgufValue::Type>(type);
  value.element_type = value.type;
  value.count = 1;
  if (value.type == GgufValue::Type::kArray) return read_array(key, value);
  const uint64_t value_start = at_;
  if (value.type == GgufValue::Type::kString) {
    TRY(skip_string("key " + quoted(key)));
  } else {
    const size_t size = value_type_bytes(value.type);
    if (left() < size) return ends_in("the value of key " + quoted(key));
    at_ += size;
  }
  value.bytes = bytes_.subspan(value_start, at_ - value_start);
  return ok_status();
}

Status Parser::skip_string(const std::string& whose) {
  const uint64_t start = at_;
  uint64_t length = 0;
  if (!take(length)) return ends_in("a string of " + whose);
  if (length > left()) {
    return damage(whose + " has a string of " + grouped(length) + " bytes" + at(start) +
                  ", but only " + grouped(left()) + " follow" + kDamagedHint);
  }
  at_ += length;
  return ok_status();
}

Status Parser::read_array(const std::string& key, GgufValue& value) {
  const uint64_t start = at_;
  uint32_t element_type = 0;
  if (!take(element_type) || !take(value.count)) return ends_in("the array of key " + quoted(key));
  if (element_type >= kValueTypes) {
    return damage("key " + quoted(key) + " is an array of value type " + grouped(element_type) +
                  at(start) + "; the format has 0 to 12");
  }
  value.element_type = static_cast<GgufValue::Type>(element_type);
  if (value.element_type == GgufValue::Type::kArray) {
    return unsupported(path_ + ": key " + quoted(key) + " is an array of arrays" + at(start) +
                       "; arrays of numbers, bools or strings can be read");
  }
  const bool strings = value.element_type == GgufValue::Type::kString;
  const uint64_t size_least = strings ? sizeof(uint64_t) : value_type_bytes(value.element_type);
  if (value.count > left() / size_least) {
    return damage("key " + quoted(key) + " announces an array of " + grouped(value.count) +
                  " elements" + at(start) + ", but only " + grouped(left()) + " bytes follow" +
                  kDamagedHint);
  }
  const uint64_t limit = strings ? kArrayStringsMax : kArrayElementsMax;
  if (value.count > limit) {
    return exhausted(path_ + ": key " + quoted(key) + " is an array of " + grouped(value.count) +
                     " elements; the limit is " + grouped(limit));
  }
  const uint64_t value_start = at_;
  if (strings) {
    const std::string whose = "key " + quoted(key);
    for (uint64_t i = 0; i < value.count; ++i) TRY(skip_string(whose));
  } else {
    at_ += value.count * size_least;
  }
  value.bytes = bytes_.subspan(value_start, at_ - value_start);
  return ok_status();
}

Status Parser::read_alignment() {
  const auto found = contents_.metadata.find("general.alignment");
  if (found == contents_.metadata.end()) return ok_status();
  TRY_ASSIGN(alignment_, to_uint(path_, found->first, found->second));
  if (!std::has_single_bit(alignment_) || alignment_ < kAlignmentMin ||
      alignment_ > kAlignmentMax) {
    return damage("general.alignment is " + grouped(alignment_) +
                  "; it must be a power of two from " + grouped(kAlignmentMin) + " to " +
                  grouped(kAlignmentMax));
  }
  return ok_status();
}

Status Parser::read_tensor(uint64_t index) {
  StoredTensor tensor;
  TRY(read_name("tensor " + grouped(index + 1) + " of " + grouped(tensor_count_),
                kTensorNameBytesMax, tensor.name));
  TRY(read_shape(tensor));
  const uint64_t type_start = at_;
  uint32_t type_id = 0;
  uint64_t offset = 0;
  if (!take(type_id) || !take(offset)) return ends_in("tensor " + quoted(tensor.name));
  const std::optional<DType> type = dtype_of_gguf(type_id);
  if (!type) {
    const std::string who = path_ + ": tensor " + quoted(tensor.name) + " has type ";
    const char* name = gguf_type_name(type_id);
    if (name == nullptr) {
      return damaged(
          who + "number " + grouped(type_id) + at(type_start) +
          ", which no known version of the format has; supported: " + supported_gguf_types());
    }
    return unsupported(who + name +
                       ", which is not supported; supported: " + supported_gguf_types());
  }
  tensor.type = *type;
  contents_.tensors.push_back(std::move(tensor));
  offsets_.push_back(offset);
  return ok_status();
}

Status Parser::read_shape(StoredTensor& tensor) {
  const uint64_t start = at_;
  uint32_t dimensions = 0;
  if (!take(dimensions)) return ends_in("the shape of tensor " + quoted(tensor.name));
  if (dimensions == 0 || dimensions > kDimensionsMax) {
    return damage("tensor " + quoted(tensor.name) + " has " + grouped(dimensions) + " dimensions" +
                  at(start) + "; the format has 1 to " + grouped(kDimensionsMax));
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    uint64_t extent = 0;
    if (!take(extent)) return ends_in("the shape of tensor " + quoted(tensor.name));
    tensor.shape.push_back(extent);
  }
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) {
    return damage("tensor " + quoted(tensor.name) + " has the shape " + shape_text(tensor.shape) +
                  at(start) + "; no dimension may be 0");
  }
  return ok_status();
}

// Sets `bytes` to the size of the tensor's data.
Status Parser::tensor_bytes(const StoredTensor& tensor, uint64_t& bytes) const {
  const DTypeInfo& info = dtype_info(tensor.type);
  if (tensor.shape[0] % info.block_elements != 0) {
    return damage("tensor " + quoted(tensor.name) + " of type " + info.name + " has rows of " +
                  grouped(tensor.shape[0]) + " elements; they must be a multiple of " +
                  grouped(info.block_elements));
  }
  bytes = info.block_bytes;
  bool overflow = __builtin_mul_overflow(bytes, tensor.shape[0] / info.block_elements, &bytes);
  for (size_t i = 1; i < tensor.shape.size(); ++i) {
    overflow |= __builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
  }
  if (overflow || bytes > kFileBytesMax) {
    return damage("tensor " + quoted(tensor.name) + " has the shape " + shape_text(tensor.shape) +
                  ", which is more than any file can hold" + kDamagedHint);
  }
  return ok_status();
}

// Gives every tensor its bytes, and refuses those that do not lie in the file where they may.
Status Parser::place_tensors() {
  const uint64_t data_start = round_up(at_, alignment_);
  uint64_t next_in_sequence = 0;  // where a writer that stores tensors in table order puts this one
  bool in_sequence = true;
  std::vector<uint64_t> sizes(contents_.tensors.size());
  uint64_t file_end = data_start;  // where the file would end if it were whole
  for (size_t i = 0; i < contents_.tensors.size(); ++i) {
    const StoredTensor& tensor = contents_.tensors[i];
    TRY(tensor_bytes(tensor, sizes[i]));
    if (offsets_[i] % alignment_ != 0) {
      return damage("tensor " + quoted(tensor.name) + " has the offset " + grouped(offsets_[i]) +
                    "; it must be a multiple of the alignment, " + grouped(alignment_));
    }
    if (offsets_[i] > kFileBytesMax) {
      return damage("tensor " + quoted(tensor.name) + " has the offset " + grouped(offsets_[i]) +
                    ", far outside of any file" + kDamagedHint);
    }
    in_sequence = in_sequence && offsets_[i] == next_in_sequence;
    next_in_sequence = round_up(offsets_[i] + sizes[i], alignment_);
    file_end = std::max(file_end, data_start + offsets_[i] + sizes[i]);
  }
  for (size_t i = 0; i < contents_.tensors.size(); ++i) {
    const uint64_t start = data_start + offsets_[i];
    if (start + sizes[i] > bytes_.size())
      return past_end(i, start + sizes[i], file_end, in_sequence);
    contents_.tensors[i].bytes = bytes_.subspan(start, sizes[i]);
  }
  return check_overlaps();
}

// A table whose tensors follow one another is trustworthy, so the file was cut; otherwise the
// offset may be what is wrong.
Status Parser::past_end(size_t tensor, uint64_t end, uint64_t file_end, bool in_sequence) const {
  std::string text = "tensor " + quoted(contents_.tensors[tensor].name) + " ends at byte " +
                     grouped(end) + " but the file has " + grouped(bytes_.size());
  if (in_sequence) {
    text += ". The download is incomplete: the whole file has " + grouped(file_end) +
            " bytes; fetch it again.";
  } else {
    text += kDamagedHint;
  }
  return damage(text);
}

Status Parser::check_overlaps() const {
  std::vector<const StoredTensor*> by_place;
  by_place.reserve(contents_.tensors.size());
  for (const StoredTensor& tensor : contents_.tensors) by_place.push_back(&tensor);
  std::sort(by_place.begin(), by_place.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->bytes.data() < b->bytes.data();
  });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const StoredTensor& before = *by_place[i - 1];
    const StoredTensor& after = *by_place[i];
    if (after.bytes.data() < before.bytes.data() + before.bytes.size()) {
      const auto start = static_cast<uint64_t>(after.bytes.data() - bytes_.data());
      return damage("tensors " + quoted(before.name) + " and " + quoted(after.name) +
                    " overlap at byte " + grouped(start) + "; each must have its own bytes");
    }
  }
  return ok_status();
}

Status Parser::check_names_differ() const {
  std::vector<std::string_view> names;
  names.reserve(contents_.tensors.size());
  for (const StoredTensor& tensor : contents_.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return ok_status();
  return damage("tensor " + quoted(*twin) + " is there twice; each name may occur once");
}

}  // namespace

Result<Contents> parse_file(const std::string& path, std::span<const uint8_t> bytes) {
  return Parser(path, bytes).parse();
}

}  // namespace kvikk::gguf
