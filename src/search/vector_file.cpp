#include "search/vector_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "kernels/float16.h"
#include "kvikk/search.h"

namespace kvikk {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kHeaderBytesMax = size_t{1} << 16;
constexpr size_t kHeaderAlign = 64;
constexpr size_t kRanksMax = 2;

struct NpyHeader {
  std::string type;           // "<f4"
  std::vector<size_t> shape;  // one or two
  size_t data = 0;            // where it begins
};

// What stands behind 'key': in a header, up to `end`.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key, char end) {
  size_t at = header.find("'" + std::string(key) + "'");
  if (at == std::string_view::npos) return std::nullopt;
  at = header.find(':', at);
  if (at == std::string_view::npos) return std::nullopt;
  at = header.find_first_not_of(' ', at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t stop = header.find(end, at + 1);
  if (stop == std::string_view::npos) return std::nullopt;
  return header.substr(at, stop + 1 - at);
}

std::optional<std::vector<size_t>> shape_of_text(std::string_view text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<size_t> shape;
  while (!text.empty()) {
    const size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    size_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    shape.push_back(value);
    if (shape.size() > kRanksMax) return shape;
    const size_t comma = text.find_first_not_of(' ');
    if (comma == std::string_view::npos) break;
    if (text[comma] != ',') return std::nullopt;
    text.remove_prefix(comma + 1);
  }
  return shape;
}

Result<NpyHeader> parse_header(std::span<const uint8_t> bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.substr(0, kMagic.size()) != kMagic || bytes.size() < 12) {
    return damaged(path + ": is not a .npy file: it does not begin as one");
  }
  const unsigned version = bytes[6];
  if (version < 1 || version > 3) {
    return unsupported(path + ": is a .npy of version " + std::to_string(version) +
                       "; versions 1 to 3 are read");
  }
  size_t length = bytes[8] | bytes[9] << 8;
  if (version > 1)
    length |= static_cast<size_t>(bytes[10]) << 16 | static_cast<size_t>(bytes[11]) << 24;
  NpyHeader header;
  header.data = (version > 1 ? 12 : 10) + length;
  if (length > kHeaderBytesMax) {
    return damaged(path + ": its header has " + std::to_string(length) + " bytes, at most " +
                   std::to_string(kHeaderBytesMax) + " are read");
  }
  if (header.data > bytes.size()) {
    return damaged(path + ": its header ends at byte " + std::to_string(header.data) +
                   " but the file has " + std::to_string(bytes.size()));
  }
  const std::string_view dictionary = text.substr(header.data - length, length);
  const auto type = value_of(dictionary, "descr", '\'');
  const auto order = value_of(dictionary, "fortran_order", ',');
  const auto shape = value_of(dictionary, "shape", ')');
  const auto extents = shape.has_value() ? shape_of_text(*shape) : std::nullopt;
  if (!type.has_value() || !order.has_value() || !extents.has_value() || type->size() < 3) {
    return damaged(path +
                   ": its header lacks descr, fortran_order or shape, or they cannot be "
                   "read");
  }
  if (order->substr(0, 5) != "False") {
    return unsupported(path + ": lies in Fortran order; save it with numpy.ascontiguousarray");
  }
  header.type = std::string(type->substr(1, type->size() - 2));
  header.shape = *extents;
  if (header.shape.empty() || header.shape.size() > kRanksMax) {
    return unsupported(path + ": has " + std::to_string(header.shape.size()) +
                       " axes; one or two are read");
  }
  return header;
}

// Errors: kDamaged when rows * columns * width bytes are not there.
Status check_size(const NpyHeader& header, size_t file_bytes, size_t width,
                  const std::string& path) {
  size_t bytes = width;
  for (const size_t extent : header.shape) {
    if (extent != 0 && bytes > SIZE_MAX / 2 / extent) {
      return damaged(path + ": its shape is larger than any file");
    }
    bytes *= extent;
  }
  if (bytes == file_bytes - header.data) return ok_status();
  return damaged(path + ": its header asks for " + std::to_string(bytes) +
                 " bytes of numbers but " + std::to_string(file_bytes - header.data) +
                 " are there");
}

// Errors: kUnsupported.
Status check_dimensions(const std::string& path, size_t dimensions) {
  if (dimensions >= 1 && dimensions <= kIndexDimensionsMax) return ok_status();
  return unsupported(path + ": its vectors have " + std::to_string(dimensions) +
                     " dimensions, not 1 to " + std::to_string(kIndexDimensionsMax));
}

}  // namespace

Status VectorFile::open_fvecs() {
  const std::string& path = file_.path();
  const size_t bytes = file_.bytes().size();
  fvecs_ = true;
  uint32_t dimensions = 0;
  if (bytes < sizeof dimensions) return damaged(path + ": is too short for an .fvecs");
  std::memcpy(&dimensions, file_.bytes().data(), sizeof dimensions);
  dimensions_ = dimensions;
  TRY(check_dimensions(path, dimensions_));
  row_bytes_ = sizeof dimensions + dimensions_ * sizeof(float);
  rows_ = bytes / row_bytes_;
  if (bytes % row_bytes_ == 0) return ok_status();
  return damaged(path + ": has " + std::to_string(bytes) + " bytes, no multiple of the " +
                 std::to_string(row_bytes_) + " of a row");
}

Result<VectorFile> VectorFile::open(const std::string& path) {
  VectorFile out;
  TRY_ASSIGN(out.file_, MappedFile::open(path));
  if (path.ends_with(".fvecs")) {
    TRY(out.open_fvecs());
    return out;
  }
  TRY_ASSIGN(const NpyHeader header, parse_header(out.file_.bytes(), path));
  if (header.type != "<f4" && header.type != "<f2") {
    return unsupported(path + ": holds '" + header.type +
                       "'; vectors are float16 or float32, '<f2' or '<f4'");
  }
  out.half_ = header.type == "<f2";
  TRY(check_size(header, out.file_.bytes().size(), out.half_ ? 2 : 4, path));
  if (header.shape.size() != 2) {
    return unsupported(path + ": has one axis; vectors are [rows, dimensions]");
  }
  out.offset_ = header.data;
  out.rows_ = header.shape[0];
  out.dimensions_ = header.shape[1];
  TRY(check_dimensions(path, out.dimensions_));
  out.row_bytes_ = out.dimensions_ * (out.half_ ? 2 : 4);
  return out;
}

Status VectorFile::read(size_t first, size_t count, float* out) const {
  for (size_t row = first; row < first + count; ++row, out += dimensions_) {
    const uint8_t* from = file_.bytes().data() + offset_ + row * row_bytes_;
    if (fvecs_) {
      uint32_t dimensions = 0;
      std::memcpy(&dimensions, from, sizeof dimensions);
      if (dimensions != dimensions_) {
        return damaged(file_.path() + ": row " + std::to_string(row) + " has " +
                       std::to_string(dimensions) + " dimensions, the first one " +
                       std::to_string(dimensions_));
      }
      from += sizeof dimensions;
    }
    if (!half_) {
      std::memcpy(out, from, dimensions_ * sizeof(float));
      continue;
    }
    for (size_t i = 0; i < dimensions_; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, from + 2 * i, sizeof half);
      out[i] = half_to_float(half);
    }
  }
  return ok_status();
}

Result<std::vector<int64_t>> read_integers(const std::string& path, size_t rows, size_t columns) {
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  TRY_ASSIGN(const NpyHeader header, parse_header(file.bytes(), path));
  const bool narrow = header.type == "<i4";
  if (!narrow && header.type != "<i8" && header.type != "<u8") {
    return unsupported(path + ": holds '" + header.type +
                       "'; whole numbers are int32, int64 or uint64");
  }
  TRY(check_size(header, file.bytes().size(), narrow ? 4 : 8, path));
  const size_t here = header.shape.size() == 2 ? header.shape[1] : 1;
  if (header.shape[0] != rows || here != columns) {
    return invalid_argument(path + ": has " + std::to_string(header.shape[0]) + " rows of " +
                            std::to_string(here) + "; needed are " + std::to_string(rows) +
                            " rows of " + std::to_string(columns));
  }
  std::vector<int64_t> out(rows * columns);
  const uint8_t* from = file.bytes().data() + header.data;
  for (size_t i = 0; i < out.size(); ++i) {
    int32_t value = 0;
    if (narrow) {
      std::memcpy(&value, from + 4 * i, sizeof value);
      out[i] = value;
    } else {
      std::memcpy(&out[i], from + 8 * i, sizeof out[i]);
    }
  }
  return out;
}

Result<size_t> integer_columns(const std::string& path) {
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  TRY_ASSIGN(const NpyHeader header, parse_header(file.bytes(), path));
  return header.shape.size() == 2 ? header.shape[1] : size_t{1};
}

Result<size_t> integer_rows(const std::string& path) {
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  TRY_ASSIGN(const NpyHeader header, parse_header(file.bytes(), path));
  return header.shape[0];
}

std::string npy_header(const char* type, size_t rows, size_t columns) {
  std::string text = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" +
                     std::to_string(rows) + ", " + std::to_string(columns) + "), }";
  constexpr size_t kPrefix = 10;
  const size_t total = (kPrefix + text.size() + 1 + kHeaderAlign - 1) / kHeaderAlign * kHeaderAlign;
  text.resize(total - kPrefix - 1, ' ');
  text += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\0';
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

}  // namespace kvikk
