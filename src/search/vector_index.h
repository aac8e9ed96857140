#pragma once
// The index behind kvikk/search.h. A writer at a time changes it; a reader takes the table and the
// version, under a lock that is held for that alone, and works on them.

#include <functional>
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
  Status make_lists(std::span<const float> sample, size_t lists) override;
  Result<size_t> probes_for(std::span<const float> queries, double recall,
                            const SearchOptions& options) const override;
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
  using Found = std::vector<std::vector<Candidate>>;
  using Take = std::function<Status(const IndexTable&, const Batch&, const Found&)>;
  // Rows that go into the index.
  struct AddedRows {
    std::span<const float> vectors;  // [n, dimensions]
    std::span<const int64_t> ids, attributes;
    const uint8_t* kept = nullptr;  // [n, kept_bytes] as they are kept; null: from the vectors
  };
  // Some of them, of one list, that go to rows of one chunk.
  struct PutTask {
    Chunk* chunk;
    size_t row;
    uint32_t list;
    std::span<const size_t> numbers;  // of the added rows
  };

  VectorIndexImpl(const Kernels& kernels, int threads) : kernels_(kernels), pool_(threads) {}

  Snapshot snapshot() const;
  void publish(std::shared_ptr<const IndexTable> table, uint64_t vectors, uint64_t removed);
  Status check_queries(std::span<const float> queries, const IndexFilter* filter) const;
  Status check_added(std::span<const float> vectors, std::span<const int64_t> ids,
                     std::span<const int64_t> attributes) const;
  Status check_search(std::span<const float> queries, const SearchOptions& options) const;
  Status search_all(std::span<const float> queries, const SearchOptions& options,
                    const Take& take) const;
  Result<Found> search_batch(const ScanTask& task, const Batch& batch,
                             const SearchOptions& options) const;
  Result<Found> scan_batch(const ScanTask& task, const CodedQueries& coded, size_t k,
                           const SearchOptions& options, ListProbes* offsets) const;
  Status rank_lists(const IndexTable& table, const Batch& batch,
                    std::vector<float>& products) const;
  // Of an inner product in a score.
  float score_factor() const { return options_.metric == Metric::kL2 ? 2.0f : 1.0f; }
  Status rerank(const ScanTask& task, const float* query, std::vector<Candidate>& found) const;
  Neighbors to_neighbors(const Found& found) const;

  // The writer's parts. All with write_mutex_ held.
  Status know_ids();
  int64_t id_at(const IndexTable& table, RowPlace at) const;
  // Adds rows to a table; places: [rows], where they went.
  Status append(IndexTable& table, const AddedRows& rows, std::vector<RowPlace>& places);
  std::vector<uint32_t> lists_of(const VectorLists& lists, std::span<const float> vectors);
  Result<uint32_t> open_chunk(IndexTable& table, uint32_t list, size_t wanted,
                              const ChunkShape& shape);
  Status close_chunk(IndexTable& table, uint32_t at, const ChunkShape& shape);
  void put_rows(const IndexTable& table, const AddedRows& rows, const PutTask& task);
  Result<std::shared_ptr<const VectorCoder>> fitted(const VectorLists* lists,
                                                    std::vector<float> rows);
  Status check_sample(std::span<const float> sample) const;
  Status code_again(IndexTable table);

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
