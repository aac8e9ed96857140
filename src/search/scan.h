#pragma once
// Scores every vector of a snapshot against some queries and keeps the best of each.

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "search/chunk.h"
#include "search/row_filter.h"
#include "search/top_k.h"

namespace kvikk {

struct ScanTask {
  const Kernels* kernels = nullptr;
  ThreadPool* pool = nullptr;  // null: on this thread alone
  const IndexTable* table = nullptr;
  uint64_t version = 0;               // rows that died in it or before are not seen
  const RowFilter* filter = nullptr;  // or null
};

// Which queries look into which lists, when not all look into all.
struct ListProbes {
  std::vector<std::vector<uint32_t>> queries;  // [lists]
  const VectorLists* lists = nullptr;
  const float* products = nullptr;  // of the queries with the centroids: [queries, lists->stride()]
  float factor = 1;                 // of a product in a score
  // A score's part that is the same for a whole list.
  float offset(size_t query, uint32_t list) const {
    return factor * products[query * lists->stride() + list];
  }
};

// For each query at most k candidates, best first, with scores of at least `floor`. Errors:
// kDamaged when a chunk of the file is not what was written. probes: null for an index without
// lists, whose queries are at most kSearchQueriesMax.
Result<std::vector<std::vector<Candidate>>> scan_all(const ScanTask& task,
                                                     const CodedQueries& queries, size_t k,
                                                     float floor, const ListProbes* probes);

// Scores of candidates of one query (`query` of `queries`, whose groups are whole codes).
void rescore(const ScanTask& task, const CodedQueries& queries, size_t query,
             const ListProbes* probes, std::vector<Candidate>& candidates);

}  // namespace kvikk
