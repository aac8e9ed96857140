#pragma once
// Takes tensors out of a model's files: checks that each has the shape the configuration asks for,
// remembers which were used, and packs matrices into the panels that kernels read.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "models/tensor_names.h"
#include "tensor/matrix.h"
#include "weights/tensor_source.h"

namespace kvikk {

struct LoadOptions {
  bool exact = false;  // weights as float32
  // Float matrices are quantized to this (block_quantizer.h), or as near as their size allows; the
  // result is kept in the models' folder `cache_dir`, if it has a name.
  std::optional<DType> weights;
  std::string cache_dir;
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

// One of `count` matrices (or vectors) that lie one after the other in a tensor.
struct Stack {
  size_t count;
  size_t index;
  bool transposed = false;  // each is stored [inputs, outputs]; not where its elements are FP4
};

// The tensor's name of a role: the layer's number for #, an expert's or a head's for @.
std::string at_layer(const char* name, size_t layer, size_t part = 0);
// Whether each expert, or head, has a tensor of its own.
bool is_one_by_one(std::string_view name);

class TensorLoader {
 public:
  TensorLoader(const TensorSource& source, LoadOptions options, const TensorNames& names);

  // The tensor NAME.weight, NAME.bias or NAME itself, as `name` says; null if there is none. Files
  // that were saved without the outermost module ("transformer.h.0 ..." as "h.0 ..."), or with
  // another in its place, are recognised by the embedding.
  const StoredTensor* lookup(const std::string& name) const;
  const StoredTensor* lookup_exactly(const std::string& name) const;
  // A tensor of exactly this shape (innermost first), or an error.
  Result<const StoredTensor*> find(const std::string& name, const std::vector<uint64_t>& shape);

  Status vector(const std::string& name, const RowChoice& rows, size_t n, std::vector<float>& out,
                const std::vector<uint64_t>& shape = {});
  // Registers a matrix; its bytes follow in pack(). `out` must stay where it is until then.
  Status matrix(const std::string& name, const RowChoice& rows, size_t outputs, size_t inputs,
                Matrix& out);
  // The same for a matrix that is never transposed, such as a table of embeddings.
  Status table_matrix(const std::string& name, size_t outputs, size_t inputs, Matrix& out);
  // The same for one whose products must be float32 (a router's), whatever the file holds.
  Status float_matrix(const std::string& name, const RowChoice& rows, size_t outputs, size_t inputs,
                      Matrix& out);
  // One matrix of a stack, the tensor NAME.weight or NAME; one vector of NAME.bias or NAME_bias.
  Status stacked_matrix(const std::string& name, const Stack& stack, const RowChoice& rows,
                        size_t outputs, size_t inputs, Matrix& out, bool float32 = false);
  Status stacked_vector(const std::string& name, const Stack& stack, const RowChoice& rows,
                        size_t n, std::vector<float>& out);
  // Rows of a matrix turned into columns, in float32: out[o][i] = tensor[first_row + i][o].
  Status turned_rows(const std::string& name, size_t tensor_rows, size_t first_row, size_t outputs,
                     size_t inputs, Matrix& out);
  // A vector that some files store as a matrix of one row.
  Status row(const std::string& name, size_t n, std::vector<float>& out);

  // A tensor that is there but not needed.
  void ignore(const std::string& name);
  // All tensors of the layers from `first` on, `count` of them. `name` is one of such a layer.
  void ignore_layers(const char* name, size_t first, size_t count);
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
    bool table = false;    // of the vocabulary
    size_t first_row = 0;  // of the tensor; all others count from there
    bool float32 = false;  // packed as float32
    bool turned = false;   // the matrix's inputs are rows of the tensor
  };
  static uint64_t bytes_of(const Job& job);  // read from the file, about
  Status add(const std::string& name, const std::vector<uint64_t>& shape, Job job, size_t outputs);
  Status pack_matrix(ThreadPool& pool, const Job& job, uint8_t* panels);
  DType packed_type(const Job& job) const;
  bool is_quantized(const Job& job) const;
  // What the packed memory is made of, for the key of its cache.
  std::string recipe() const;
  static bool pack_turned_panel(const Job& job, size_t panel, uint8_t* target);
  bool pack_one_panel(const Job& job, size_t panel, uint8_t* target) const;

  const TensorSource& source_;
  LoadOptions options_;
  const TensorNames& names_;
  // What stands in place of the first component of names, where it is not that.
  std::optional<std::string> module_;
  std::vector<Job> jobs_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace kvikk
