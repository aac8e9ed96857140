// One safetensors file. The header is read event by event, so that nesting, unknown keys and keys
// that occur twice are refused where they stand, and no tree of it is built.

#include "weights/safetensors_parser.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "weights/gguf_parser.h"

namespace kvikk::safetensors {
namespace {

using gguf::grouped;

constexpr char kAgain[] = "; the file is damaged: fetch it again";

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E4M3, DType::kF8_E8M0, DType::kBool,
        DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kI64, DType::kF64}) {
    if (name == dtype_info(type).name) return type;
  }
  return std::nullopt;
}

struct Entry {
  StoredTensor tensor;
  std::vector<uint64_t> offsets;
  bool has_type = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// The events of the header. Each returns false to stop, and then `error` says why.
class Header {
 public:
  Header(const std::string& path, uint64_t header_start)
      : path_(path), header_start_(header_start) {}

  std::vector<Entry> entries;
  Status error;

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a bool"); }
  bool number_integer(int64_t value) { return unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return unexpected(text); }
  bool binary(std::vector<uint8_t>&) { return unexpected("bytes"); }
  bool number_unsigned(uint64_t value) {
    if (place_ != Place::kNumbers) return unexpected(grouped(value));
    std::vector<uint64_t>& numbers = shape_ ? entries.back().tensor.shape : entries.back().offsets;
    if (numbers.size() >= kDimensionsMax) {
      return fail(exhausted(where() + " has more than " + grouped(kDimensionsMax) + " numbers"));
    }
    numbers.push_back(value);
    return true;
  }
  bool string(const std::string& value) {
    if (place_ == Place::kMetadata && depth_ == 2) return true;
    if (place_ != Place::kType) return unexpected("the string " + gguf::quoted(value));
    const std::optional<DType> type = dtype_of(value);
    if (!type) {
      return fail(unsupported(path_ + ": tensor " + gguf::quoted(entries.back().tensor.name) +
                              " has type " + gguf::quoted(value) +
                              ", which is not supported; supported: F32, F16, BF16, F8_E4M3"));
    }
    entries.back().tensor.type = *type;
    place_ = Place::kTensor;
    return true;
  }
  bool start_object(size_t) {
    ++depth_;
    if (depth_ == 1) return true;
    if (depth_ == 2 && (place_ == Place::kMetadata || place_ == Place::kEntry)) {
      if (place_ == Place::kEntry) place_ = Place::kTensor;
      return true;
    }
    return unexpected("an object");
  }
  bool end_object() {
    if (--depth_ == 1 && place_ == Place::kTensor) {
      const Entry& entry = entries.back();
      if (!entry.has_type) return missing("dtype");
      if (!entry.has_shape) return missing("shape");
      if (!entry.has_offsets) return missing("data_offsets");
    }
    if (depth_ == 1) place_ = Place::kTop;
    return true;
  }
  bool start_array(size_t) {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected("a list");
    shape_ = place_ == Place::kShape;
    place_ = Place::kNumbers;
    return true;
  }
  bool end_array() {
    if (place_ == Place::kNumbers) place_ = Place::kTensor;
    return true;
  }
  bool key(const std::string& name) {
    if (depth_ == 1) return top_key(name);
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor) return unexpected("key " + gguf::quoted(name));
    Entry& entry = entries.back();
    bool* seen = name == "dtype"          ? &entry.has_type
                 : name == "shape"        ? &entry.has_shape
                 : name == "data_offsets" ? &entry.has_offsets
                                          : nullptr;
    if (seen == nullptr) return unexpected("key " + gguf::quoted(name));
    if (*seen) return fail(damaged(where() + " has " + gguf::quoted(name) + " twice"));
    *seen = true;
    place_ = name == "dtype" ? Place::kType : name == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception& problem) {
    const std::string what = problem.what();
    const size_t start = what.find("parse error");
    return fail(damaged(path_ + ": the header is not valid JSON at byte " +
                        grouped(header_start_ + at) + ": " +
                        (start == std::string::npos ? what : what.substr(start)) + kAgain));
  }

 private:
  enum class Place { kTop, kMetadata, kEntry, kTensor, kType, kShape, kOffsets, kNumbers };

  bool top_key(const std::string& name) {
    if (name == "__metadata__") {
      if (has_metadata_) return fail(damaged(path_ + ": the header has __metadata__ twice"));
      has_metadata_ = true;
      place_ = Place::kMetadata;
      return true;
    }
    if (name.empty() || name.size() > kNameBytesMax) {
      return fail(damaged(path_ + ": a tensor has a name of " + grouped(name.size()) +
                          " bytes; 1 to " + grouped(kNameBytesMax) + " are allowed"));
    }
    if (entries.size() >= kTensorsMax) {
      return fail(exhausted(path_ + ": has more than " + grouped(kTensorsMax) + " tensors"));
    }
    entries.emplace_back();
    entries.back().tensor.name = name;
    place_ = Place::kEntry;
    return true;
  }
  std::string where() const {
    if (place_ == Place::kMetadata) return path_ + ": __metadata__ of the header";
    if (entries.empty() || place_ == Place::kTop) return path_ + ": the header";
    return path_ + ": the entry of tensor " + gguf::quoted(entries.back().tensor.name);
  }
  bool unexpected(const std::string& what) {
    const char* wanted = place_ == Place::kTop        ? "an object"
                         : place_ == Place::kMetadata ? "strings"
                         : place_ == Place::kType     ? "the name of a type"
                         : place_ == Place::kNumbers  ? "whole numbers"
                         : place_ == Place::kShape || place_ == Place::kOffsets
                             ? "a list of numbers"
                             : "an object of dtype, shape and data_offsets";
    return fail(damaged(where() + " has " + what + " where " + wanted + " should be" + kAgain));
  }
  bool missing(const char* what) {
    return fail(damaged(where() + " has no " + std::string(what) + kAgain));
  }
  bool fail(Status status) {
    error = std::move(status);
    return false;
  }

  const std::string& path_;
  uint64_t header_start_;
  Place place_ = Place::kTop;
  int depth_ = 0;
  bool shape_ = false;  // the numbers are the shape, not the offsets
  bool has_metadata_ = false;
};

Status check_start(const std::string& path, std::span<const uint8_t> bytes, uint64_t& length) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.substr(0, kPointer.size()) == kPointer) {
    return damaged(path + ": is a Git LFS pointer, not the file itself: 'git lfs pull' brings it");
  }
  if (bytes.size() < sizeof length) {
    return damaged(path + ": ends after " + grouped(bytes.size()) +
                   " bytes; the length of the header alone takes 8" + kAgain);
  }
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kHeaderBytesMax) {
    return damaged(path + ": announces a header of " + grouped(length) +
                   " bytes; the format allows " + grouped(kHeaderBytesMax) +
                   ", so it is damaged or no safetensors file");
  }
  if (length > bytes.size() - sizeof length) {
    return damaged(path + ": announces a header of " + grouped(length) + " bytes, but only " +
                   grouped(bytes.size() - sizeof length) +
                   " follow. The download is incomplete: fetch it again.");
  }
  if (length < 2 || bytes[8] != '{') {
    return damaged(path +
                   ": the header does not begin with '{' at byte 8, so it is damaged or no " +
                   "safetensors file");
  }
  return ok_status();
}

// Bytes that shape and type ask for, or nothing if no file could hold them.
std::optional<uint64_t> tensor_bytes(const StoredTensor& tensor) {
  uint64_t bytes = dtype_info(tensor.type).block_bytes;
  for (const uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

Status check_entry(const std::string& path, const Entry& entry) {
  const std::string who = path + ": tensor " + gguf::quoted(entry.tensor.name);
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1]) {
    return damaged(who + " has data_offsets that are not [begin, end]" + kAgain);
  }
  const std::optional<uint64_t> bytes = tensor_bytes(entry.tensor);
  const uint64_t given = entry.offsets[1] - entry.offsets[0];
  if (bytes != given) {
    return damaged(who + " of type " + dtype_info(entry.tensor.type).name + " and shape " +
                   shape_text(entry.tensor.shape) + " takes " +
                   (bytes ? grouped(*bytes) : std::string("more than 2^64")) +
                   " bytes, but data_offsets give it " + grouped(given) + kAgain);
  }
  return ok_status();
}

// Tensors fill the data from its first byte to its last, each byte once.
Status check_places(const std::string& path, const std::vector<Entry>& entries, uint64_t data_start,
                    uint64_t file_bytes) {
  std::vector<const Entry*> by_place;
  by_place.reserve(entries.size());
  for (const Entry& entry : entries) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(),
            [](const Entry* a, const Entry* b) { return a->offsets < b->offsets; });
  uint64_t end = 0;
  const Entry* before = nullptr;
  for (const Entry* entry : by_place) {
    const std::string who = "tensor " + gguf::quoted(entry->tensor.name);
    if (entry->offsets[0] < end) {
      return damaged(path + ": tensors " + gguf::quoted(before->tensor.name) + " and " +
                     gguf::quoted(entry->tensor.name) + " overlap at byte " +
                     grouped(data_start + entry->offsets[0]) + kAgain);
    }
    if (entry->offsets[0] > end) {
      return damaged(path + ": " + who + " begins at byte " + grouped(entry->offsets[0]) +
                     " of the data, but what is before it ends at " + grouped(end) + kAgain);
    }
    end = entry->offsets[1];
    before = entry;
  }
  const uint64_t data_bytes = file_bytes - data_start;
  if (end > data_bytes) {
    return damaged(path + ": tensor " + gguf::quoted(before->tensor.name) + " ends at byte " +
                   grouped(end) + " of the data but the file has " + grouped(data_bytes) +
                   " there. The download is incomplete: fetch it again.");
  }
  if (end < data_bytes) {
    return damaged(path + ": has " + grouped(data_bytes - end) + " bytes after the last tensor, " +
                   "which no tensor owns" + kAgain);
  }
  return ok_status();
}

}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (size_t i = shape.size(); i-- > 0;) {
    text += (text.empty() ? "" : " x ") + std::to_string(shape[i]);
  }
  return "[" + text + "]";
}

Result<std::vector<StoredTensor>> parse_file(const std::string& path,
                                             std::span<const uint8_t> bytes) {
  uint64_t length = 0;
  TRY(check_start(path, bytes, length));
  const std::span<const uint8_t> text = bytes.subspan(sizeof length, length);
  Header header(path, sizeof length);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &header)) {
    return header.error.ok() ? damaged(path + ": the header cannot be read") : header.error;
  }
  for (Entry& entry : header.entries) {
    std::reverse(entry.tensor.shape.begin(), entry.tensor.shape.end());
    TRY(check_entry(path, entry));
  }
  const uint64_t data_start = sizeof length + length;
  TRY(check_places(path, header.entries, data_start, bytes.size()));
  std::vector<StoredTensor> tensors;
  tensors.reserve(header.entries.size());
  for (Entry& entry : header.entries) {
    entry.tensor.bytes =
        bytes.subspan(data_start + entry.offsets[0], entry.offsets[1] - entry.offsets[0]);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

}  // namespace kvikk::safetensors
