#include "search_source.h"

#include <algorithm>
#include <cmath>

#include "text/json_text.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

Status append_vector(const Json& line, const std::string& where, std::vector<float>& out) {
  const auto vector = line.find("vector");
  if (vector == line.end() || !vector->is_array()) {
    return damaged(where + ": 'vector' must be there and a list of numbers");
  }
  for (const Json& number : *vector) {
    if (!number.is_number()) return damaged(where + ": 'vector' has something that is no number");
    out.push_back(number.get<float>());
  }
  return ok_status();
}

Status append_integer(const Json& value, const std::string& where, std::vector<int64_t>& out) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))) {
    return damaged(where + ": ids and attributes are whole numbers of 64 bits");
  }
  out.push_back(value.get<int64_t>());
  return ok_status();
}

// A key that is on all lines or on none: `before` numbers came from the lines before this one.
Status check_regular(size_t before, size_t now, size_t line, const char* key,
                     const std::string& where) {
  if (line == 0 || before == (now - before) * line) return ok_status();
  return damaged(where + ": '" + key + "' is not as on the lines before");
}

}  // namespace

Status VectorSource::read_lines(Shell& shell, const std::string& path) {
  from_memory_ = true;
  TRY_ASSIGN(LineReader lines, LineReader::open(shell, path));
  std::string text;
  for (;;) {
    TRY_ASSIGN(const bool more, lines.next(text));
    if (!more) break;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = lines.where();
    if (rows_ == kJsonRowsMax) {
      return exhausted(where + ": at most " + std::to_string(kJsonRowsMax) +
                       " vectors are read from lines; a .npy has no such limit");
    }
    TRY_ASSIGN(const Json line, parse_json_object(text, where));
    const size_t vectors = memory_.size();
    const size_t ids = ids_.size();
    const size_t attributes = attributes_.size();
    TRY(append_vector(line, where, memory_));
    TRY(check_regular(vectors, memory_.size(), rows_, "vector", where));
    if (const auto id = line.find("id"); id != line.end()) TRY(append_integer(*id, where, ids_));
    TRY(check_regular(ids, ids_.size(), rows_, "id", where));
    if (const auto found = line.find("attributes"); found != line.end()) {
      if (!found->is_array()) return damaged(where + ": 'attributes' must be a list");
      for (const Json& value : *found) TRY(append_integer(value, where, attributes_));
    }
    TRY(check_regular(attributes, attributes_.size(), rows_, "attributes", where));
    ++rows_;
  }
  if (rows_ == 0) return damaged(path + ": has no lines");
  dimensions_ = memory_.size() / rows_;
  attribute_count_ = attributes_.size() / rows_;
  return ok_status();
}

Result<VectorSource> VectorSource::open(Shell& shell, const SourceOptions& options) {
  VectorSource source;
  if (options.vectors.ends_with(".jsonl")) {
    if (!options.ids.empty() || !options.attributes.empty()) {
      return invalid_argument("the lines of a .jsonl have ids and attributes of their own");
    }
    TRY(source.read_lines(shell, options.vectors));
    return source;
  }
  TRY_ASSIGN(source.file_, VectorFile::open(options.vectors));
  source.rows_ = source.file_.rows();
  source.dimensions_ = source.file_.dimensions();
  if (!options.ids.empty()) {
    TRY_ASSIGN(source.ids_, read_integers(options.ids, source.rows_, 1));
  }
  if (!options.attributes.empty()) {
    TRY_ASSIGN(source.attribute_count_, integer_columns(options.attributes));
    TRY_ASSIGN(source.attributes_,
               read_integers(options.attributes, source.rows_, source.attribute_count_));
  }
  return source;
}

VectorSource VectorSource::of(std::vector<float> vectors, size_t dimensions,
                              std::vector<int64_t> ids) {
  VectorSource source;
  source.from_memory_ = true;
  source.rows_ = vectors.size() / dimensions;
  source.dimensions_ = dimensions;
  source.memory_ = std::move(vectors);
  source.ids_ = std::move(ids);
  return source;
}

Status VectorSource::read(size_t first, size_t count, float* out) const {
  if (!from_memory_) return file_.read(first, count, out);
  std::copy_n(memory_.data() + first * dimensions_, count * dimensions_, out);
  return ok_status();
}

std::vector<int64_t> VectorSource::ids(size_t first, size_t count) const {
  std::vector<int64_t> out;
  for (size_t i = first; i < first + count; ++i) {
    out.push_back(ids_.empty() ? static_cast<int64_t>(i) : ids_[i]);
  }
  return out;
}

std::span<const int64_t> VectorSource::attributes(size_t first, size_t count) const {
  return std::span<const int64_t>(attributes_)
      .subspan(first * attribute_count_, count * attribute_count_);
}

}  // namespace kvikk
