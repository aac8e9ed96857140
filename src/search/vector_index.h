#pragma once
// The index behind kvikk/search.h. A writer at a time changes it; a reader takes the table and the
// version, under a lock that is held for that alone, and works on them.

#include <mutex>

#include "base/thread_pool.h"
#include "search/id_map.h"
#include "search/index_file.h"
#include "search/scan.h"

namespace kvikk {

class VectorIndexImpl : public VectorIndex {
 public:
  static Result<std::unique_ptr<VectorIndexImpl>> make(const IndexRuntime& runtime);
  // Before anybody else knows the index.
  void start(IndexContent content, IndexFileState file);

  Status fit(std::span<const float> sample) override;
  Status refit() override;
  Status add(std::span<const float> vectors, std::span<const int64_t> ids,
             std::span<const int64_t> attributes) override;
  Result<size_t> remove(std::span<const int64_t> ids) override;
  Status compact() override;
  Result<Neighbors> search(std::span<const float> queries,
                           const SearchOptions& options) const override;
  Result<Neighbors> range_search(std::span<const float> queries, float score,
                                 const IndexFilter* filter) const override;
  Status save(const std::string& path) override;
  Status verify() const override;
  IndexInfo info() const override;

 private:
  struct Snapshot {
    std::shared_ptr<const IndexTable> table;
    uint64_t version = 0;
    uint64_t vectors = 0, removed = 0;
  };
  // A batch of queries and what else a search of it needs.
  struct Batch {
    std::span<const float> queries;  // [count, dimensions]
    size_t count = 0;
    size_t first = 0;  // of the search's queries
  };

  VectorIndexImpl(const Kernels& kernels, int threads) : kernels_(kernels), pool_(threads) {}

  Snapshot snapshot() const;
  void publish(std::shared_ptr<const IndexTable> table, uint64_t vectors, uint64_t removed);
  Status check_queries(std::span<const float> queries, const IndexFilter* filter) const;
  Status check_added(std::span<const float> vectors, std::span<const int64_t> ids,
                     std::span<const int64_t> attributes) const;
  Result<std::vector<std::vector<Candidate>>> search_batch(const ScanTask& task, const Batch& batch,
                                                           const SearchOptions& options) const;
  Status rerank(const ScanTask& task, const float* query, std::vector<Candidate>& found) const;
  Neighbors to_neighbors(const std::vector<std::vector<Candidate>>& found) const;

  // The writer's parts. All with write_mutex_ held.
  Status know_ids();
  int64_t id_at(const IndexTable& table, RowPlace at) const;
  // Adds rows behind the table's; `encode(first, count, row, chunk)` writes them.
  Status append(IndexTable& table, std::span<const float> vectors, std::span<const int64_t> ids,
                std::span<const int64_t> attributes);
  Result<size_t> open_last_chunk(IndexTable& table, const ChunkShape& shape);
  Status close_last_chunk(IndexTable& table, const ChunkShape& shape, size_t rows);
  void put_rows(const IndexTable& table, Chunk& chunk, size_t row, std::span<const float> vectors,
                std::span<const int64_t> ids, std::span<const int64_t> attributes);
  Status rebuild(std::shared_ptr<const VectorCoder> coder);

  Kernels kernels_;
  mutable ThreadPool pool_;
  mutable std::mutex pool_mutex_;  // whoever does not get it computes on its own thread
  IndexOptions options_;

  std::mutex write_mutex_;
  IndexFileState file_;
  IdMap ids_;
  bool ids_known_ = true;  // false after opening a file, until the first change

  mutable std::mutex snapshot_mutex_;
  Snapshot current_;
};

}  // namespace kvikk
