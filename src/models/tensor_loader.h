#pragma once
// Takes tensors out of a model's files: checks that each has the shape the configuration asks for,
// remembers which were used, and packs matrices into the panels that kernels read.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "models/tensor_names.h"
#include "tensor/matrix.h"
#include "weights/tensor_source.h"

namespace kvikk {

struct LoadOptions {
  bool exact = false;  // weights as float32
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

// Which rows of a tensor are the rows of a matrix (or the elements of a bias): from `first`,
// `block` of every `stride`. Fused tensors (q, k and v in one) are cut by this.
struct RowChoice {
  size_t tensor_rows;
  size_t first = 0;
  size_t block = 0;
  size_t stride = 0;

  static RowChoice all(size_t rows) { return {rows, 0, rows, rows}; }
  static RowChoice range(size_t tensor_rows, size_t first, size_t count) {
    return {tensor_rows, first, count, tensor_rows};
  }
  size_t row(size_t i) const { return first + i / block * stride + i % block; }
};

class TensorLoader {
 public:
  TensorLoader(const TensorSource& source, LoadOptions options, const TensorNames& names);

  // The tensor NAME.weight, NAME.bias or NAME itself, as `name` says; null if there is none. Files
  // that were saved without the outermost module ("transformer.h.0 ..." as "h.0 ...") are
  // recognised by the embedding.
  const StoredTensor* lookup(const std::string& name) const;
  // A tensor of exactly this shape (innermost first), or an error.
  Result<const StoredTensor*> find(const std::string& name, const std::vector<uint64_t>& shape);

  Status vector(const std::string& name, const RowChoice& rows, size_t n, std::vector<float>& out,
                const std::vector<uint64_t>& shape = {});
  // Registers a matrix; its bytes follow in pack(). `out` must stay where it is until then.
  Status matrix(const std::string& name, const RowChoice& rows, size_t outputs, size_t inputs,
                Matrix& out);
  // The same for a matrix that is never transposed, such as a table of embeddings.
  Status table_matrix(const std::string& name, size_t outputs, size_t inputs, Matrix& out);

  // A tensor that is there but not needed.
  void ignore(const std::string& name);
  // A tensor that nobody asked for means that this would be another model.
  Status refuse_unknown() const;

  // Reads every block of a tensor that stays in the file, so that a damaged one is found now.
  Status validate(ThreadPool& pool, const StoredTensor& tensor);
  // Allocates and fills all registered matrices.
  Status pack(ThreadPool& pool, Buffer& memory);

 private:
  struct Job {
    const StoredTensor* tensor;
    RowChoice rows;
    bool transposed;
    Matrix* matrix;
  };
  Status add(const std::string& name, const std::vector<uint64_t>& shape, Job job, size_t outputs);
  Status pack_matrix(ThreadPool& pool, const Job& job, uint8_t* panels);
  DType packed_type(const StoredTensor& tensor) const;
  bool pack_one_panel(const Job& job, size_t panel, uint8_t* target) const;

  const TensorSource& source_;
  LoadOptions options_;
  const TensorNames& names_;
  bool without_module_ = false;  // names lack their first component
  std::vector<Job> jobs_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace kvikk
