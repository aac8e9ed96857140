#pragma once
// A model's tensors, whatever file format they come in: GgufFile (gguf.h) and SafetensorsFolder
// (safetensors.h) implement this, and everything that loads weights reads through it. Only names,
// types, shapes and bytes: what a tensor means is for src/models.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace kvikk {

// Scales that a format keeps in a second tensor, one for each block of rows x columns of a matrix
// (FP8: 128 x 128). A weight is its stored value times the scale of its block; the blocks at the
// right and lower edge may be cut off. The second tensor is not listed in tensors().
struct BlockScales {
  std::span<const uint8_t> bytes;  // [ceil(rows / block_rows), ceil(columns / block_columns)]
  DType type = DType::kF32;        // F32, F16 or BF16
  uint64_t block_rows = 0;         // 0: the tensor has no such scales
  uint64_t block_columns = 0;

  bool empty() const { return block_rows == 0; }
};

struct StoredTensor {
  std::string name;
  DType type = DType::kF32;
  std::vector<uint64_t> shape;     // innermost (contiguous) dimension first; a scalar has none
  std::span<const uint8_t> bytes;  // in the mapped file
  size_t file = 0;                 // index of the file of a set that holds it
  BlockScales scales;

  uint64_t elements() const {
    uint64_t product = 1;
    for (const uint64_t extent : shape) product *= extent;
    return product;
  }
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The file or folder, as messages name it.
  virtual const std::string& path() const = 0;
  virtual size_t file_count() const = 0;
  // In the order of the files. Names are unique.
  virtual std::span<const StoredTensor> tensors() const = 0;
  virtual const StoredTensor* find_tensor(std::string_view name) const = 0;

  // kDamaged if a scale (or an element of a float type) among `elements` from `first_element` of
  // the tensor is NaN or infinite; says which block at which byte of which file. Both are whole
  // blocks. Costs a look at every scale, so call it on what is read anyway.
  virtual Status validate_blocks(const StoredTensor& tensor, uint64_t first_element,
                                 uint64_t elements) const = 0;

  // The mapped file that holds the tensor; null for one that was parsed from memory.
  virtual const MappedFile* file_of(const StoredTensor& tensor) const = 0;

  // Gives the pages of a tensor that has been read back to the system.
  void drop(const StoredTensor& tensor) const {
    const MappedFile* const file = file_of(tensor);
    if (file != nullptr) file->drop(offset_in(*file, tensor), tensor.bytes.size());
  }

  // Where the tensor's bytes begin in the file that holds it.
  static size_t offset_in(const MappedFile& file, const StoredTensor& tensor) {
    return static_cast<size_t>(tensor.bytes.data() - file.bytes().data());
  }

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource& operator=(const TensorSource&) = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(TensorSource&&) = default;
};

}  // namespace kvikk
