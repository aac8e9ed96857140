#pragma once
// Files of vectors: NumPy's .npy (version 1 to 3 headers, C order, float16, float32, and whole
// numbers for ids) and .fvecs (each row: its dimensions as int32, then float32). Everything that a
// header says is compared with the file's size.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"

namespace kvikk {

// Rows of a mapped file, converted when they are read.
class VectorFile {
 public:
  // A name that ends in .fvecs is such a file, any other a .npy. Errors: kNotFound, kIo, kDamaged
  // (a header that contradicts itself or the file), kUnsupported (another type, another order).
  static Result<VectorFile> open(const std::string& path);

  size_t rows() const { return rows_; }
  size_t dimensions() const { return dimensions_; }
  // Rows [first, first + count) to out [count, dimensions()].
  // Errors: kDamaged for a row of an .fvecs that says to have other dimensions.
  Status read(size_t first, size_t count, float* out) const;

 private:
  Status open_fvecs();

  MappedFile file_;
  size_t offset_ = 0;
  size_t row_bytes_ = 0;
  bool fvecs_ = false;  // each row begins with its dimensions
  size_t rows_ = 0;
  size_t dimensions_ = 0;
  bool half_ = false;
};

// A .npy of int32, int64 or uint64 with `rows` rows of `columns` numbers. Errors: as open();
// kInvalidArgument for another shape.
Result<std::vector<int64_t>> read_integers(const std::string& path, size_t rows, size_t columns);
// Its columns (1 for one axis), its rows. Errors: as open().
Result<size_t> integer_columns(const std::string& path);
Result<size_t> integer_rows(const std::string& path);

// The bytes in front of the data of a .npy, "<i8" or "<f4", C order, [rows, columns].
std::string npy_header(const char* type, size_t rows, size_t columns);

}  // namespace kvikk
