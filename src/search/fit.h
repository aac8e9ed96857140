#pragma once
// A coder fitted to a sample (vector_coder.h): mean, principal axes, bits by variance.

#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "search/vector_coder.h"

namespace kvikk {

// More vectors of a sample than this are thinned out evenly.
inline constexpr size_t kFitVectorsMax = 16384;

// A vector with length 1; zeros as they are. Returns its squared length; where that is no number
// `out` has none either.
double to_unit(const float* vector, size_t dimensions, float* out);

// At most `wanted` vectors of a sample [n, dimensions], ready (vector_coder.h). Errors:
// kInvalidArgument for a NaN, an infinity or too long a vector.
Result<std::vector<float>> ready_sample(std::span<const float> sample, size_t dimensions,
                                        size_t wanted, Metric metric);

// rows [n, dimensions]: ready, or what they differ by from the centroids of their lists. Errors:
// kInvalidArgument: too few vectors or too many dimensions, vectors that are all the same.
Result<VectorCoder> fit_coder(const Kernels& kernels, ThreadPool& pool,
                              const std::vector<float>& rows, size_t dimensions, size_t bits,
                              Metric metric);

// Which of `count` rows a uniform sample of at most `wanted` takes, ascending.
std::vector<size_t> sample_rows(size_t count, size_t wanted);

}  // namespace kvikk
