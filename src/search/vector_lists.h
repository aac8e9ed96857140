#pragma once
// The lists of an inverted file: a vector lies in the list whose centroid is nearest, and what is
// coded is what it differs from the centroid by. A search looks only into the lists whose
// centroids have the best scores. The centroids come from k-means over a sample.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kvikk/search.h"

namespace kvikk {

// Of a sample that centroids are made from: more are thinned out evenly.
size_t list_sample_rows(size_t lists, size_t dimensions);

class VectorLists {
 public:
  // rows [n, dimensions], ready (vector_coder.h). Errors: kInvalidArgument: too few of them.
  static Result<VectorLists> make(const Kernels& kernels, ThreadPool& pool,
                                  std::span<const float> rows, size_t dimensions, size_t lists,
                                  Metric metric);
  // centroids [lists, dimensions]
  VectorLists(std::vector<float> centroids, size_t dimensions, size_t probes);

  size_t count() const { return half_squares_.size(); }
  // How many lists a search looks into unless it is told.
  size_t probes() const { return probes_; }
  size_t stride() const { return stride_; }
  const float* centroid(size_t list) const { return centroids_.data() + list * dimensions_; }
  const std::vector<float>& centroids() const { return centroids_; }  // [lists, dimensions]

  // Inner products of ready rows [count, dimensions] with the centroids: [count, stride].
  void products(const Kernels& kernels, const float* rows, size_t count,
                std::vector<float>& out) const;
  // The list of each row, from its products.
  uint32_t nearest(const float* products) const;
  // The same for many rows, with all threads of the pool.
  std::vector<uint32_t> assign(const Kernels& kernels, ThreadPool& pool,
                               std::span<const float> rows) const;
  // The score of a centroid itself less what is the same for all lists.
  float score(const float* products, uint32_t list, Metric metric) const;
  // The lists that are at places [first, last) when the best score comes first.
  std::vector<uint32_t> best(const float* products, Metric metric, size_t first, size_t last) const;
  // The place of each list in that order: [count].
  std::vector<uint32_t> places(const float* products, Metric metric) const;

 private:
  std::vector<float> centroids_;     // [lists, dimensions]
  std::vector<float> across_;        // [dimensions, stride]
  std::vector<float> half_squares_;  // [lists]: half of the squared length
  size_t dimensions_, stride_, probes_;
};

// How many of the best lists hold `recall` of what was found in lists of these places: at least 1.
size_t probes_for_places(std::vector<uint32_t> places, double recall);

}  // namespace kvikk
