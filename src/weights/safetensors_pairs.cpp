// Tensors that come in pairs, values and scales, become one.

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "weights/gguf_parser.h"
#include "weights/safetensors_parser.h"

namespace kvikk::safetensors {
namespace {

using gguf::grouped;

class Pairs {
 public:
  Pairs(const std::string& path, uint64_t block_rows, uint64_t block_columns,
        std::vector<StoredTensor>& tensors)
      : path_(path), block_rows_(block_rows), block_columns_(block_columns), tensors_(tensors) {}

  Status join() {
    for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
    taken_.assign(tensors_.size(), false);
    for (StoredTensor& tensor : tensors_) {
      if (tensor.type == DType::kF8_E4M3) TRY(join_fp8(tensor));
    }
    std::vector<std::pair<size_t, size_t>> mxfp4;  // renamed last: by_name_ views the names
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const std::string_view name = tensors_[i].name;
      if (tensors_[i].type != DType::kU8 || !name.ends_with(kBlocks)) continue;
      const std::string stem(name.substr(0, name.size() - kBlocks.size()));
      const size_t scales = find(stem + "_scales");
      if (scales == kNone || tensors_[scales].type != DType::kU8) continue;
      mxfp4.emplace_back(i, scales);
    }
    by_name_.clear();
    for (const auto& [blocks, scales] : mxfp4) TRY(join_mxfp4(tensors_[blocks], scales));
    size_t kept = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (taken_[i]) continue;
      if (kept != i) tensors_[kept] = std::move(tensors_[i]);
      ++kept;
    }
    tensors_.resize(kept);
    return ok_status();
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr std::string_view kBlocks = "_blocks";

  size_t find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? kNone : found->second;
  }

  Status join_fp8(StoredTensor& tensor) {
    size_t at = find(tensor.name + "_scale_inv");
    if (at == kNone) at = find(tensor.name + "_scale");
    if (at == kNone) return ok_status();  // as it is: scale 1
    const StoredTensor& scales = tensors_[at];
    const std::string who = path_ + ": tensor " + gguf::quoted(scales.name);
    if (scales.type != DType::kF32 && scales.type != DType::kF16 && scales.type != DType::kBF16) {
      return unsupported(who + " has scales of type " + dtype_info(scales.type).name +
                         "; F32, F16 or BF16 can be read");
    }
    if (tensor.shape.empty()) return ok_status();
    const uint64_t columns = tensor.shape[0];
    const uint64_t rows = columns == 0 ? 0 : tensor.elements() / columns;
    BlockScales& joined = tensor.scales;
    joined.bytes = scales.bytes;
    joined.type = scales.type;
    if (is_grid(tensor, scales)) {
      joined.block_rows = block_rows_;
      joined.block_columns = block_columns_;
    } else if (scales.elements() == 1) {
      joined.block_rows = std::max<uint64_t>(rows, 1);
      joined.block_columns = std::max<uint64_t>(columns, 1);
    } else if (scales.elements() == rows && (scales.shape.size() == 1 || scales.shape[0] == 1)) {
      joined.block_rows = 1;
      joined.block_columns = std::max<uint64_t>(columns, 1);
    } else {
      return damaged(who + " has the shape " + shape_text(scales.shape) +
                     ", which is no scale for " + grouped(block_rows_) + " x " +
                     grouped(block_columns_) + " blocks, rows or all of " +
                     shape_text(tensor.shape));
    }
    taken_[at] = true;
    const size_t input = find(tensor.name.substr(0, tensor.name.rfind('.') + 1) + "input_scale");
    if (input != kNone) taken_[input] = true;
    return ok_status();
  }

  // Whether `scales` has one for each block of the matrix, or of each of the matrices.
  bool is_grid(const StoredTensor& tensor, const StoredTensor& scales) const {
    if (tensor.shape.size() < 2 || scales.shape.size() != tensor.shape.size()) return false;
    const bool stacked = tensor.shape.size() > 2;
    if (stacked && tensor.shape[1] % block_rows_ != 0) return false;  // blocks across matrices
    return scales.shape[0] == (tensor.shape[0] + block_columns_ - 1) / block_columns_ &&
           scales.shape[1] == (tensor.shape[1] + block_rows_ - 1) / block_rows_ &&
           std::equal(tensor.shape.begin() + 2, tensor.shape.end(), scales.shape.begin() + 2);
  }

  Status join_mxfp4(StoredTensor& blocks, size_t scales_at) {
    constexpr uint64_t kGroup = 32;
    constexpr uint64_t kGroupBytes = 16;
    const StoredTensor& scales = tensors_[scales_at];
    if (blocks.shape.size() < 3 || blocks.shape[0] != kGroupBytes ||
        !std::equal(blocks.shape.begin() + 1, blocks.shape.end(), scales.shape.begin(),
                    scales.shape.end())) {
      return damaged(path_ + ": tensors " + gguf::quoted(blocks.name) + " of shape " +
                     shape_text(blocks.shape) + " and " + gguf::quoted(scales.name) + " of shape " +
                     shape_text(scales.shape) +
                     " should be [..., rows, groups x 16] and [..., rows, groups]");
    }
    blocks.name.resize(blocks.name.size() - kBlocks.size());
    blocks.type = DType::kF4_E2M1;
    blocks.shape.erase(blocks.shape.begin());
    blocks.shape[0] *= kGroup;  // the bytes are in the file: no overflow
    blocks.scales = {scales.bytes, DType::kF8_E8M0, 1, kGroup};
    taken_[scales_at] = true;
    return ok_status();
  }

  const std::string& path_;
  uint64_t block_rows_;
  uint64_t block_columns_;
  std::vector<StoredTensor>& tensors_;
  std::map<std::string_view, size_t> by_name_;
  std::vector<bool> taken_;
};

}  // namespace

Status join_pairs(const std::string& path, uint64_t block_rows, uint64_t block_columns,
                  std::vector<StoredTensor>& tensors) {
  return Pairs(path, block_rows, block_columns, tensors).join();
}

}  // namespace kvikk::safetensors
