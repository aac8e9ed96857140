#pragma once
// The vectors that go into an index, whatever file they come from.

#include <string>
#include <vector>

#include "search/vector_file.h"
#include "search_options.h"
#include "shell.h"

namespace kvikk {

// Of a file of JSON lines, which is read as a whole.
inline constexpr size_t kJsonRowsMax = size_t{1} << 24;

struct SourceOptions {
  std::string vectors;
  std::string ids;
  std::string attributes;

  template <class V>
  void visit(V&& v) {
    v(vectors, "vectors", 1, kPathBytesMax,
      "file of vectors: .npy of float32 or float16, .fvecs, .jsonl");
    v(ids, "ids", 1, kPathBytesMax, ".npy of int64, one a vector; default the row numbers");
    v(attributes, "attributes", 1, kPathBytesMax, ".npy of integers [rows, 1 to 4], for filters");
  }
};

class VectorSource {
 public:
  // A .jsonl has lines {"vector": [..], "id": .., "attributes": [..]}; id and attributes are on all
  // lines or on none. Errors: those of the file, with the line.
  static Result<VectorSource> open(Shell& shell, const SourceOptions& options);
  // Vectors [rows, dimensions] that are there already, and their ids [rows].
  static VectorSource of(std::vector<float> vectors, size_t dimensions, std::vector<int64_t> ids);

  size_t rows() const { return rows_; }
  size_t dimensions() const { return dimensions_; }
  size_t attribute_count() const { return attribute_count_; }
  bool has_ids() const { return !ids_.empty(); }
  // Rows [first, first + count) to out [count, dimensions()].
  Status read(size_t first, size_t count, float* out) const;
  std::vector<int64_t> ids(size_t first, size_t count) const;
  std::span<const int64_t> attributes(size_t first, size_t count) const;

 private:
  Status read_lines(Shell& shell, const std::string& path);

  VectorFile file_;
  std::vector<float> memory_;  // [rows, dimensions], instead of the file
  bool from_memory_ = false;
  size_t rows_ = 0, dimensions_ = 0, attribute_count_ = 0;
  std::vector<int64_t> ids_;         // [rows]; empty: row numbers
  std::vector<int64_t> attributes_;  // [rows, attribute_count]
};

}  // namespace kvikk
