#pragma once
// A coder fitted to a sample (vector_coder.h): mean, principal axes, bits by variance.

#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "search/vector_coder.h"

namespace kvikk {

// More vectors of a sample than this are thinned out evenly.
inline constexpr size_t kFitVectorsMax = 16384;

// sample [n, dimensions]. Errors: kInvalidArgument: too few vectors or too many dimensions, a NaN,
// vectors that are all the same.
Result<VectorCoder> fit_coder(const Kernels& kernels, ThreadPool& pool,
                              std::span<const float> sample, size_t dimensions, size_t bits,
                              Metric metric);

// Which of `count` rows a uniform sample of at most `wanted` takes, ascending.
std::vector<size_t> sample_rows(size_t count, size_t wanted);

}  // namespace kvikk
