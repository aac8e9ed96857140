// GgufFile: one file or a split set as one table of tensors. Only the first file of a set brings
// metadata; the others carry tensors and their place in the set.

#include "weights/gguf.h"

#include <cstdio>

#include "base/check.h"
#include "weights/block_formats.h"
#include "weights/gguf_parser.h"

namespace kvikk {
namespace {

constexpr char kSplitIndex[] = "split.no";
constexpr char kSplitCount[] = "split.count";
constexpr char kSplitTensors[] = "split.tensors.count";

// The name of a file of a set, taken apart: PREFIX-00002-of-00003.gguf. Empty prefix: not such a
// name.
struct SetName {
  std::string prefix;
  uint64_t number = 0;  // counts from 1
  uint64_t count = 0;
};

SetName parse_set_name(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";  // 0 stands for any digit
  if (path.size() <= kPattern.size()) return {};
  const std::string_view tail = std::string_view(path).substr(path.size() - kPattern.size());
  SetName name;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '0' ? !digit : tail[i] != kPattern[i]) return {};
    if (kPattern[i] != '0') continue;
    uint64_t& number = i < 6 ? name.number : name.count;
    number = number * 10 + static_cast<uint64_t>(tail[i] - '0');
  }
  name.prefix = path.substr(0, path.size() - kPattern.size());
  return name;
}

std::string set_path(const std::string& prefix, uint64_t number, uint64_t count) {
  char tail[64];
  std::snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", static_cast<unsigned>(number),
                static_cast<unsigned>(count));
  return prefix + tail;
}

// A split key of `contents`; `fallback` if it is missing.
Result<uint64_t> split_value(const std::string& path, const gguf::Contents& contents,
                             const char* key, uint64_t fallback) {
  const auto found = contents.metadata.find(key);
  if (found == contents.metadata.end()) return fallback;
  return gguf::to_uint(path, key, found->second);
}

Status check_first_of_set(const std::string& path, const gguf::Contents& contents, uint64_t count) {
  TRY_ASSIGN(const uint64_t index, split_value(path, contents, kSplitIndex, 0));
  const SetName name = parse_set_name(path);
  if (count > gguf::kShardsMax) {
    return exhausted(path + ": belongs to a set of " + gguf::grouped(count) +
                     " files; the limit is " + gguf::grouped(gguf::kShardsMax));
  }
  if (index != 0) {
    std::string text = path + ": is file " + gguf::grouped(index + 1) + " of a set of " +
                       gguf::grouped(count) + ": open the first one";
    if (!name.prefix.empty()) text += ", " + set_path(name.prefix, 1, count);
    return invalid_argument(text);
  }
  if (name.prefix.empty() || name.number != 1 || name.count != count) {
    return invalid_argument(path + ": is the first of a set of " + gguf::grouped(count) +
                            " files, and the others are found by its name, which must end in " +
                            set_path("", 1, count) + ": rename it");
  }
  return ok_status();
}

Status check_member_of_set(const std::string& path, const gguf::Contents& contents, uint64_t index,
                           uint64_t count) {
  TRY_ASSIGN(const uint64_t own_index, split_value(path, contents, kSplitIndex, UINT64_MAX));
  TRY_ASSIGN(const uint64_t own_count, split_value(path, contents, kSplitCount, UINT64_MAX));
  if (own_index == index && own_count == count) return ok_status();
  const std::string should =
      "; it should be file " + gguf::grouped(index + 1) + " of " + gguf::grouped(count);
  if (own_index == UINT64_MAX || own_count == UINT64_MAX) {
    return damaged(path + ": does not say that it belongs to a set (no " + kSplitIndex + " or " +
                   kSplitCount + ")" + should);
  }
  return damaged(path + ": says that it is file " + gguf::grouped(own_index + 1) + " of " +
                 gguf::grouped(own_count) + should);
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  TRY_ASSIGN(MappedFile mapped, MappedFile::open(path));
  TRY_ASSIGN(gguf::Contents contents, gguf::parse_file(path, mapped.bytes()));
  TRY_ASSIGN(const uint64_t count, split_value(path, contents, kSplitCount, 1));
  if (count > 1) TRY(check_first_of_set(path, contents, count));

  GgufFile file;
  file.path_ = path;
  file.version_ = contents.version;
  file.metadata_ = std::move(contents.metadata);
  file.shards_.push_back(std::make_shared<const MappedFile>(std::move(mapped)));
  TRY(file.add_tensors(std::move(contents.tensors)));
  if (count > 1) TRY(file.load_rest_of_set(count));
  return file;
}

Result<GgufFile> GgufFile::parse(const std::string& name, std::span<const uint8_t> bytes) {
  TRY_ASSIGN(gguf::Contents contents, gguf::parse_file(name, bytes));
  GgufFile file;
  file.path_ = name;
  file.version_ = contents.version;
  file.metadata_ = std::move(contents.metadata);
  file.shards_.push_back(std::make_shared<const MappedFile>());
  TRY(file.add_tensors(std::move(contents.tensors)));
  return file;
}

Status GgufFile::load_rest_of_set(uint64_t count) {
  const std::string prefix = parse_set_name(path_).prefix;
  for (uint64_t index = 1; index < count; ++index) {
    const std::string path = set_path(prefix, index + 1, count);
    Result<MappedFile> mapped = MappedFile::open(path);
    if (mapped.status().code() == StatusCode::kNotFound) {
      return not_found(path + ": is missing: it is file " + gguf::grouped(index + 1) + " of the " +
                       gguf::grouped(count) +
                       " that make up the model; fetch it into the same folder");
    }
    if (!mapped.ok()) return mapped.status();
    TRY_ASSIGN(gguf::Contents contents, gguf::parse_file(path, mapped->bytes()));
    TRY(check_member_of_set(path, contents, index, count));
    for (StoredTensor& tensor : contents.tensors) tensor.file = index;
    shards_.push_back(std::make_shared<const MappedFile>(std::move(*mapped)));
    TRY(add_tensors(std::move(contents.tensors)));
  }
  if (!has(kSplitTensors)) return ok_status();
  TRY_ASSIGN(const uint64_t announced, get_uint(kSplitTensors));
  if (announced == tensors_.size()) return ok_status();
  return damaged(path_ + ": the set announces " + gguf::grouped(announced) + " tensors (" +
                 kSplitTensors + ") but its " + gguf::grouped(count) + " files hold " +
                 gguf::grouped(tensors_.size()) + ": are they from different sets?");
}

Status GgufFile::add_tensors(std::vector<StoredTensor> tensors) {
  if (tensors.size() > gguf::kTensorsMax - tensors_.size()) {
    return exhausted(path_ + ": the set has more than " + gguf::grouped(gguf::kTensorsMax) +
                     " tensors, which is the limit");
  }
  for (StoredTensor& tensor : tensors) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return damaged(shards_[tensor.file]->path() + ": tensor " + gguf::quoted(tensor.name) +
                     " is also in another file of the set; each name may occur once");
    }
    tensors_.push_back(std::move(tensor));
  }
  return ok_status();
}

const std::string& GgufFile::path() const { return path_; }
uint32_t GgufFile::version() const { return version_; }
const std::map<std::string, GgufValue, std::less<>>& GgufFile::metadata() const {
  return metadata_;
}
std::span<const StoredTensor> GgufFile::tensors() const { return tensors_; }
bool GgufFile::has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }

const StoredTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const MappedFile* GgufFile::file_of(const StoredTensor& tensor) const {
  const MappedFile* const file = shards_[tensor.file].get();
  return file->bytes().empty() ? nullptr : file;  // empty: parsed from memory
}

const MappedFile& GgufFile::shard(size_t index) const {
  CHECK(index < shards_.size());
  return *shards_[index];
}

Result<const GgufValue*> GgufFile::find_value(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end())
    return damaged(path_ + ": key " + gguf::quoted(key) + " is missing");
  return &found->second;
}

Result<uint64_t> GgufFile::get_uint(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_uint(path_, key, *value);
}

Result<float> GgufFile::get_float(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_float(path_, key, *value);
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_bool(path_, key, *value);
}

Result<std::string> GgufFile::get_string(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_string(path_, key, *value);
}

Result<std::vector<std::string>> GgufFile::get_strings(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_strings(path_, key, *value);
}

Result<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_floats(path_, key, *value);
}

Result<std::vector<int64_t>> GgufFile::get_ints(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, find_value(key));
  return gguf::to_ints(path_, key, *value);
}

Status GgufFile::validate_blocks(const StoredTensor& tensor, uint64_t first_element,
                                 uint64_t elements) const {
  const DTypeInfo& info = dtype_info(tensor.type);
  const size_t offset = row_bytes(tensor.type, first_element);
  CHECK(offset + row_bytes(tensor.type, elements) <= tensor.bytes.size());
  const auto bad = find_non_finite_block(tensor.type, tensor.bytes.data() + offset, elements);
  if (!bad) return ok_status();
  const MappedFile& file = *shards_[tensor.file];
  const std::string& path = file.path().empty() ? path_ : file.path();
  std::string where = "block " + gguf::grouped(offset / info.block_bytes + *bad);
  if (!file.bytes().empty()) {
    const uint8_t* block = tensor.bytes.data() + offset + *bad * info.block_bytes;
    where += " (at byte " + gguf::grouped(static_cast<uint64_t>(block - file.bytes().data())) + ")";
  }
  return damaged(path + ": tensor " + gguf::quoted(tensor.name) + " of type " + info.name +
                 " has a value that is NaN or infinite in " + where +
                 ". The file is damaged: fetch it again.");
}

}  // namespace kvikk
