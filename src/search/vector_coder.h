#pragma once
// Vectors to codes and queries to what a scan multiplies with codes.
//
// Oblivious: a random rotation makes the coordinates of any vector alike; one codebook fits all.
// Fitted: the mean of a sample is taken off, its principal axes replace the coordinates, in groups
// of like variance that are rotated at random inside; a group gets more bits the more its variance
// weighs. Either way x is about mean + scale * sum over coordinates of sigma * level * axis, and
// the scale is such that the inner product with x itself, weighted by the variances, is exact:
// queries are taken to come from where the vectors come from. Its denominator cannot be near 0,
// because every level has the sign of its coordinate.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/rotation.h"
#include "kernels/kernels.h"
#include "kvikk/search.h"
#include "search/code_layout.h"

namespace kvikk {

// Vectors and queries are coded so many at a time.
inline constexpr size_t kCodedRowsMax = 64;
// Longer vectors are refused: their squares, or their scales, would not be finite.
inline constexpr double kVectorLengthMax = 1e9;

// How vectors become coordinates: what an index file keeps beside its layout.
struct VectorTransform {
  size_t dimensions = 0;
  uint64_t seed = 0;        // of the rotation; fitted axes are rotated already
  std::vector<float> mean;  // [dimensions]; empty: oblivious
  std::vector<float> axes;  // [dimensions, axes_stride]: column j is the axis of coordinate j
  size_t axes_stride = 0;   // a multiple of 32
  bool fitted() const { return !mean.empty(); }
};

// Rounded to 10 bits of mantissa and 6 of exponent (SearchSelectArgs); 0 below its range.
uint16_t scale_to_bits(double scale);

struct CodedVector {
  std::vector<uint8_t> codes;  // [layout.dims()]
  uint16_t scale = 0;
  float norm = 0;  // squared length
};

// Some queries, as scans read them.
struct CodedQueries {
  size_t count = 0;
  const std::vector<SearchGroup>* groups = nullptr;
  size_t stride = 0, classes = 0;
  std::vector<int8_t> codes;         // [count, stride], and what kernels may read behind it
  std::vector<int32_t> code_sums;    // [count, classes]
  std::vector<float> steps;          // [count, classes]
  std::vector<float> first;          // [count]
  std::vector<float> constants;      // [count]: of SearchSelectArgs
  SearchScanArgs scan_args() const;  // all but the vectors and the sums
  // Some of them, in the order that is given.
  void pick(std::span<const uint32_t> queries, CodedQueries& out) const;
};

class VectorCoder {
 public:
  static VectorCoder oblivious(size_t dimensions, size_t bits, Metric metric);
  VectorCoder(VectorTransform transform, CodeLayout layout, Metric metric);

  const CodeLayout& layout() const { return layout_; }
  const VectorTransform& transform() const { return transform_; }
  Metric metric() const { return metric_; }

  // vectors [rows, dimensions], rows <= kCodedRowsMax; out: [rows], resized. Errors:
  // kInvalidArgument for a NaN, an infinity or too long a vector: `first_row` counts in messages.
  // What is coded of a vector that was made ready is what it differs from `centre` by
  // ([dimensions], or null for 0); its norm stays whole.
  Status encode(const Kernels& kernels, const float* vectors, size_t rows, size_t first_row,
                const float* centre, std::vector<CodedVector>& out) const;
  // The same for queries, any number. `top`: for a scan over the top planes alone.
  Result<CodedQueries> code_queries(const Kernels& kernels, const float* queries, size_t count,
                                    bool top) const;
  // As vectors and queries are before they are coded, [count, dimensions]: of length 1 for kCosine.
  Status make_ready(const float* rows, size_t count, size_t first_row, const char* what,
                    std::vector<float>& ready, std::vector<double>& squares) const;
  // The coded vector again, less its centre: [dimensions]; of kCosine with length 1.
  void decode(const CodedVector& coded, float* out) const;

 private:
  // Rows that were made ready (unit length for kCosine) to coordinates [rows, coordinate_stride].
  void project(const Kernels& kernels, const float* rows, size_t count, bool take_mean,
               std::vector<float>& out) const;
  size_t coordinate_stride() const;
  void encode_coordinates(const Kernels& kernels, const float* y, CodedVector& out) const;
  void code_query(const float* y, bool top, size_t index, CodedQueries& out) const;
  std::vector<SearchGroup> classed(bool top) const;

  VectorTransform transform_;
  CodeLayout layout_;
  Metric metric_;
  std::unique_ptr<const Rotation> rotation_;  // null: fitted
  std::vector<SearchGroup> whole_, top_;      // as queries meet them
  std::vector<float> level_values_;           // [groups, 64]: level * unit * sigma, up to 6 bits
  double energy_ = 0;                         // sum of sigma^2 over all coordinates
};

}  // namespace kvikk
