// SafetensorsFolder: which files make up the model, and their tensors as one table.

#include "weights/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "weights/block_formats.h"
#include "weights/gguf_parser.h"
#include "weights/json_file.h"
#include "weights/safetensors_parser.h"

namespace kvikk {
namespace {

using gguf::grouped;
using nlohmann::json;

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A file of this folder and nothing else: no separator, no way up.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Status no_files(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return not_found(path + ": is no folder");
  std::string text = path + ": has no " + std::string(kSingle) + " and no " + kIndex;
  if (is_file(path + "/pytorch_model.bin") || is_file(path + "/pytorch_model.bin.index.json")) {
    text += "; its weights are PyTorch pickles: convert them to safetensors";
  }
  return not_found(text);
}

// The sides of FP8 scale blocks, from config.json where it says them.
Status scale_blocks(const std::string& folder, uint64_t& rows, uint64_t& columns) {
  constexpr uint64_t kBlockMax = 1 << 16;
  const std::string path = folder + "/config.json";
  if (!is_file(path)) return ok_status();
  TRY_ASSIGN(const json config, read_json_file(path));
  const auto method = config.find("quantization_config");
  if (!config.is_object() || method == config.end() || !method->is_object()) return ok_status();
  const auto size = method->find("weight_block_size");
  if (size == method->end() || size->is_null()) return ok_status();
  const auto side = [&](size_t i) -> uint64_t {
    const json& value = (*size)[i];
    return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
  };
  if (!size->is_array() || size->size() != 2 || side(0) == 0 || side(1) == 0 ||
      side(0) > kBlockMax || side(1) > kBlockMax) {
    return damaged(path +
                   ": quantization_config.weight_block_size is not [rows, columns] of 1 to " +
                   grouped(kBlockMax));
  }
  rows = side(0);
  columns = side(1);
  return ok_status();
}

// The files that the index names, in the order of their names.
struct IndexEntries {
  std::map<std::string, std::string> file_of_tensor;
  std::set<std::string> files;
};

Result<IndexEntries> read_index(const std::string& path) {
  TRY_ASSIGN(const json index, read_json_file(path));
  const auto map = index.find("weight_map");
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return damaged(path + ": has no object weight_map");
  }
  if (map->empty()) return damaged(path + ": weight_map is empty");
  IndexEntries entries;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return damaged(path + ": weight_map gives tensor " + gguf::quoted(tensor) + " the file " +
                     gguf::quoted(file.is_string() ? file.get<std::string>() : file.type_name()) +
                     "; it must be the name of a file in the same folder");
    }
    entries.files.insert(file.get<std::string>());
    entries.file_of_tensor.emplace(tensor, file.get<std::string>());
  }
  if (entries.files.size() > safetensors::kFilesMax) {
    return exhausted(path + ": names " + grouped(entries.files.size()) + " files; the limit is " +
                     grouped(safetensors::kFilesMax));
  }
  return entries;
}

}  // namespace

Result<SafetensorsFolder> SafetensorsFolder::open(const std::string& path) {
  SafetensorsFolder folder;
  folder.path_ = path;
  while (folder.path_.size() > 1 && folder.path_.back() == '/') folder.path_.pop_back();
  const std::string& root = folder.path_;
  if (is_file(root + "/" + kSingle)) {
    TRY(folder.open_file(kSingle));
  } else if (is_file(root + "/" + kIndex)) {
    TRY(folder.open_set(root + "/" + kIndex));
  } else {
    return no_files(root);
  }
  TRY(folder.finish());
  return folder;
}

Result<SafetensorsFolder> SafetensorsFolder::parse(const std::string& name,
                                                   std::span<const uint8_t> bytes) {
  SafetensorsFolder folder;
  folder.path_ = name;
  TRY(folder.add({name, nullptr, bytes}));
  TRY(folder.finish());
  return folder;
}

Status SafetensorsFolder::open_file(const std::string& name) {
  TRY_ASSIGN(MappedFile file, MappedFile::open(path_ + "/" + name));
  auto mapped = std::make_shared<const MappedFile>(std::move(file));
  return add({mapped->path(), mapped, mapped->bytes()});
}

Status SafetensorsFolder::open_set(const std::string& index_path) {
  TRY_ASSIGN(const IndexEntries entries, read_index(index_path));
  for (const std::string& name : entries.files) {
    if (!is_file(path_ + "/" + name)) {
      return not_found(path_ + "/" + name + ": is missing; " + index_path + " names it, and " +
                       grouped(entries.files.size()) + " files in all");
    }
    TRY(open_file(name));
  }
  for (const auto& [tensor, name] : entries.file_of_tensor) {
    const StoredTensor* found = find_tensor(tensor);
    if (found != nullptr && files_[found->file].path == path_ + "/" + name) continue;
    return damaged(
        index_path + ": tensor " + gguf::quoted(tensor) + " should be in " + name +
        (found == nullptr ? ", which does not have it" : " but is in " + files_[found->file].path));
  }
  return ok_status();
}

Status SafetensorsFolder::add(File file) {
  TRY_ASSIGN(std::vector<StoredTensor> tensors, safetensors::parse_file(file.path, file.bytes));
  for (StoredTensor& tensor : tensors) {
    tensor.file = files_.size();
    const auto [place, added] = index_.emplace(tensor.name, tensors_.size());
    if (!added) {
      const size_t other = tensors_[place->second].file;
      return damaged(
          file.path + ": tensor " + gguf::quoted(tensor.name) +
          (other == files_.size() ? " is there twice" : " is also in " + files_[other].path) +
          "; each name may occur once");
    }
    tensors_.push_back(std::move(tensor));
  }
  if (tensors_.size() > safetensors::kTensorsMax) {
    return exhausted(path_ + ": has more than " + grouped(safetensors::kTensorsMax) + " tensors");
  }
  files_.push_back(std::move(file));
  return ok_status();
}

Status SafetensorsFolder::finish() {
  uint64_t block_rows = 128;
  uint64_t block_columns = 128;
  if (files_[0].mapped != nullptr) TRY(scale_blocks(path_, block_rows, block_columns));
  TRY(safetensors::join_pairs(path_, block_rows, block_columns, tensors_));
  index_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (index_.emplace(tensors_[i].name, i).second) continue;
    return damaged(path_ + ": tensor " + gguf::quoted(tensors_[i].name) +
                   " is there twice, once as a " + "pair of blocks and scales");
  }
  return ok_status();
}

const StoredTensor* SafetensorsFolder::find_tensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status SafetensorsFolder::validate_blocks(const StoredTensor& tensor, uint64_t first_element,
                                          uint64_t elements) const {
  const DTypeInfo& info = dtype_info(tensor.type);
  if (!is_weight_type(tensor.type)) {
    return unsupported(files_[tensor.file].path + ": tensor " + gguf::quoted(tensor.name) +
                       " has elements of type " + info.name + ", which weights cannot be");
  }
  CHECK(first_element % info.block_elements == 0);
  CHECK(first_element + elements <= tensor.elements());
  const std::string who =
      files_[tensor.file].path + ": tensor " + gguf::quoted(tensor.name) + " has a ";
  const uint64_t first_byte = first_element / info.block_elements * info.block_bytes;
  const uint8_t* source = tensor.bytes.data() + first_byte;
  if (const auto block = find_non_finite_block(tensor.type, source, elements)) {
    const auto at = static_cast<uint64_t>(source - files_[tensor.file].bytes.data()) +
                    *block * info.block_bytes;
    return damaged(who + "weight that is not a finite number at byte " + grouped(at) +
                   "; the file is damaged: fetch it again");
  }
  const BlockScales& scales = tensor.scales;
  if (scales.empty() || elements == 0) return ok_status();
  // Those of the rows that the elements lie in.
  const uint64_t columns = tensor.shape[0];
  const uint64_t per_row = (columns + scales.block_columns - 1) / scales.block_columns;
  const uint64_t first = first_element / columns / scales.block_rows * per_row;
  const uint64_t last =
      (first_element + elements - 1) / columns / scales.block_rows * per_row + per_row;
  const size_t size = dtype_info(scales.type).block_bytes;
  CHECK(last * size <= scales.bytes.size());
  const std::span<const uint8_t> read = scales.bytes.subspan(first * size, (last - first) * size);
  const bool finite = scales.type == DType::kF8_E8M0
                          ? std::find(read.begin(), read.end(), 0xff) == read.end()
                          : !find_non_finite_block(scales.type, read.data(), last - first);
  if (finite) return ok_status();
  return damaged(who + "scale that is not a finite number among those from scale " +
                 grouped(first) + "; the file is damaged: fetch it again");
}

const MappedFile* SafetensorsFolder::file_of(const StoredTensor& tensor) const {
  return files_[tensor.file].mapped.get();
}

}  // namespace kvikk
