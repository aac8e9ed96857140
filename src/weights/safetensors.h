#pragma once
// A model folder as Hugging Face lays it out: model.safetensors, or the files that
// model.safetensors.index.json names. Everything in it is untrusted: the headers must account for
// every byte of their files before a tensor is offered.
//
// Layout of a file: header length u64; the header, JSON: {name: {"dtype", "shape", "data_offsets":
// [begin, end)}, ..., "__metadata__": {strings}}; then the data, where the offsets count from. The
// tensors lie in it without gap or overlap.
//
// Two kinds of tensors come in a pair and are offered as one, with BlockScales:
//   X of F8_E4M3 with X_scale_inv or X_scale (both multiply): a scale for each block of 128 x 128
//   (or as config.json's quantization_config.weight_block_size says), each row, or the tensor.
//   X_blocks U8 [..., rows, groups, 16] with X_scales U8 [..., rows, groups] (MXFP4): X of F4_E2M1
//   [..., rows, groups * 32] and F8_E8M0 scales for 1 x 32.
// X_input_scale of an FP8 tensor (for activations, which are not rounded to FP8 here) is left out.
// Read rows of all types by tensor_rows.h.
//
// As with GGUF, files must not shrink while they are open.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "weights/tensor_source.h"

namespace kvikk {

class SafetensorsFolder final : public TensorSource {
 public:
  // Opens the files of the folder `path`; reads headers only. Errors: kNotFound (no folder, no
  // safetensors files in it, one of the set missing), kDamaged (says where and what was expected),
  // kUnsupported (an element type), kIo, kExhausted (a limit).
  static Result<SafetensorsFolder> open(const std::string& path);

  // One file already in memory, which must outlive the result. For tests and the fuzzer.
  static Result<SafetensorsFolder> parse(const std::string& name, std::span<const uint8_t> bytes);

  const std::string& path() const override { return path_; }
  size_t file_count() const override { return files_.size(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const StoredTensor* find_tensor(std::string_view name) const override;
  Status validate_blocks(const StoredTensor& tensor, uint64_t first_element,
                         uint64_t elements) const override;
  const MappedFile* file_of(const StoredTensor& tensor) const override;

  const std::string& file_path(size_t index) const { return files_[index].path; }

 private:
  struct File {
    std::string path;
    std::shared_ptr<const MappedFile> mapped;  // null when it was parsed from memory
    std::span<const uint8_t> bytes;
  };

  Status open_file(const std::string& name);
  Status open_set(const std::string& index_path);
  Status add(File file);
  Status finish();

  std::string path_;
  std::vector<File> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // into tensors_
};

}  // namespace kvikk
