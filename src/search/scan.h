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

// For each query at most k candidates, best first, with scores of at least `floor`. Errors:
// kDamaged when a chunk of the file is not what was written.
Result<std::vector<std::vector<Candidate>>> scan_all(const ScanTask& task,
                                                     const CodedQueries& queries, size_t k,
                                                     float floor);

// Scores of candidates of one query (`query` of `queries`, whose groups are whole codes).
void rescore(const ScanTask& task, const CodedQueries& queries, size_t query,
             std::vector<Candidate>& candidates);

}  // namespace kvikk
