#include "search/vector_index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/cpu_features.h"
#include "search/fit.h"

namespace kvikk {

namespace {

constexpr size_t kCandidatesDefault = 64;  // of a staged search
constexpr size_t kCandidatesPerNeighbor = 6;
// Candidates that the queries of a batch may collect together.
constexpr size_t kBatchCandidatesMax = size_t{1} << 22;

Status check_options(const IndexOptions& options) {
  if (options.dimensions < 1 || options.dimensions > kIndexDimensionsMax) {
    return invalid_argument("vectors have 1 to " + std::to_string(kIndexDimensionsMax) +
                            " dimensions, not " + std::to_string(options.dimensions));
  }
  const int bits = options.bits;
  if (bits != 1 && bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    return invalid_argument("bits are 1, 2, 3, 4 or 8, not " + std::to_string(bits));
  }
  if (options.attributes > kIndexAttributesMax) {
    return invalid_argument("a vector has at most " + std::to_string(kIndexAttributesMax) +
                            " attributes, not " + std::to_string(options.attributes));
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<VectorIndexImpl>> VectorIndexImpl::make(const IndexRuntime& runtime) {
  TRY_ASSIGN(const CpuFeatures features, choose_features(runtime.cpu_level));
  const int threads = runtime.threads > 0 ? runtime.threads : available_cores();
  return std::unique_ptr<VectorIndexImpl>(new VectorIndexImpl(make_kernels(features), threads));
}

void VectorIndexImpl::start(IndexContent content, IndexFileState file) {
  options_ = content.options;
  file_ = std::move(file);
  ids_known_ = content.table.chunks.empty();
  publish(std::make_shared<const IndexTable>(std::move(content.table)), content.vectors,
          content.removed);
}

Result<std::unique_ptr<VectorIndex>> VectorIndex::create(const IndexOptions& options,
                                                         const IndexRuntime& runtime) {
  TRY(check_options(options));
  TRY_ASSIGN(std::unique_ptr<VectorIndexImpl> index, VectorIndexImpl::make(runtime));
  IndexContent content;
  content.options = options;
  content.table.coder = std::make_shared<const VectorCoder>(VectorCoder::oblivious(
      options.dimensions, static_cast<size_t>(options.bits), options.metric));
  index->start(std::move(content), {});
  return std::unique_ptr<VectorIndex>(std::move(index));
}

Result<std::unique_ptr<VectorIndex>> VectorIndex::open(const std::string& path,
                                                       const IndexRuntime& runtime) {
  TRY_ASSIGN(std::unique_ptr<VectorIndexImpl> index, VectorIndexImpl::make(runtime));
  IndexFileState state;
  TRY_ASSIGN(IndexContent content, open_index_file(path, state));
  index->start(std::move(content), std::move(state));
  return std::unique_ptr<VectorIndex>(std::move(index));
}

VectorIndexImpl::Snapshot VectorIndexImpl::snapshot() const {
  std::lock_guard lock(snapshot_mutex_);
  return current_;
}

void VectorIndexImpl::publish(std::shared_ptr<const IndexTable> table, uint64_t vectors,
                              uint64_t removed) {
  std::lock_guard lock(snapshot_mutex_);
  current_.table.swap(table);  // the old one is destroyed after the lock
  ++current_.version;
  current_.vectors = vectors;
  current_.removed = removed;
}

Status VectorIndexImpl::check_queries(std::span<const float> queries,
                                      const IndexFilter* filter) const {
  if (queries.size() % options_.dimensions != 0) {
    return invalid_argument("queries have " + std::to_string(queries.size()) +
                            " numbers, not a multiple of the index's " +
                            std::to_string(options_.dimensions) + " dimensions");
  }
  if (filter == nullptr) return ok_status();
  for (const IndexFilter::Range& range : filter->ranges) {
    if (range.attribute < options_.attributes) continue;
    return invalid_argument("the filter asks for attribute " + std::to_string(range.attribute) +
                            "; vectors of this index have " + std::to_string(options_.attributes));
  }
  return ok_status();
}

Result<std::vector<std::vector<Candidate>>> VectorIndexImpl::search_batch(
    const ScanTask& task, const Batch& batch, const SearchOptions& options) const {
  const VectorCoder& coder = *task.table->coder;
  const float lowest = -std::numeric_limits<float>::infinity();
  const size_t wanted = std::max(options.k, std::min(options.rerank, kNeighborsMax));
  std::vector<std::vector<Candidate>> found;
  if (options.staged) {
    const size_t candidates =
        std::max({options.candidates, wanted,
                  options.candidates > 0
                      ? size_t{0}
                      : std::max(kCandidatesDefault, kCandidatesPerNeighbor * options.k)});
    TRY_ASSIGN(const CodedQueries top,
               coder.code_queries(kernels_, batch.queries.data(), batch.count, true));
    TRY_ASSIGN(found, scan_all(task, top, candidates, lowest));
    TRY_ASSIGN(const CodedQueries whole,
               coder.code_queries(kernels_, batch.queries.data(), batch.count, false));
    const auto score = [&](size_t q, int) {
      rescore(task, whole, q, found[q]);
      std::sort(found[q].begin(), found[q].end(), is_better);
    };
    if (task.pool != nullptr) {
      task.pool->parallel_for(batch.count, score);
    } else {
      for (size_t q = 0; q < batch.count; ++q) score(q, 0);
    }
  } else {
    TRY_ASSIGN(const CodedQueries whole,
               coder.code_queries(kernels_, batch.queries.data(), batch.count, false));
    TRY_ASSIGN(found, scan_all(task, whole, wanted, lowest));
  }
  for (size_t q = 0; q < batch.count; ++q) {
    if (found[q].size() > wanted) found[q].resize(wanted);
    if (options.rerank > 0) {
      TRY(rerank(task, batch.queries.data() + q * options_.dimensions, found[q]));
    }
    if (found[q].size() > options.k) found[q].resize(options.k);
  }
  return found;
}

Status VectorIndexImpl::rerank(const ScanTask& task, const float* query,
                               std::vector<Candidate>& found) const {
  const size_t d = options_.dimensions;
  double length = 1;
  if (options_.metric == Metric::kCosine) {
    double squares = 0;
    for (size_t i = 0; i < d; ++i) squares += static_cast<double>(query[i]) * query[i];
    length = squares > 0 ? std::sqrt(squares) : 1;
  }
  std::vector<float> vector(d);
  for (Candidate& candidate : found) {
    const ChunkView& view = task.table->chunks[candidate.chunk];
    const uint8_t* bytes = view.holder(candidate.row).kept(view.row_in_holder(candidate.row));
    TRY(get_kept(options_.kept, bytes, d, vector.data()));
    double score = 0;
    for (size_t i = 0; i < d; ++i) {
      const double x = vector[i];
      score += options_.metric == Metric::kL2 ? -(query[i] - x) * (query[i] - x) : query[i] * x;
    }
    candidate.score = static_cast<float>(score / length);
  }
  std::sort(found.begin(), found.end(), is_better);
  return ok_status();
}

Neighbors VectorIndexImpl::to_neighbors(const std::vector<std::vector<Candidate>>& found) const {
  Neighbors out;
  for (const std::vector<Candidate>& candidates : found) {
    std::vector<Neighbor>& neighbors = out.emplace_back();
    for (const Candidate& c : candidates) {
      // Codes may put a distance a little below 0.
      neighbors.push_back(
          {c.id, options_.metric == Metric::kL2 ? std::max(-c.score, 0.0f) : c.score});
    }
  }
  return out;
}

Result<Neighbors> VectorIndexImpl::search(std::span<const float> queries,
                                          const SearchOptions& options) const {
  TRY(check_queries(queries, options.filter));
  if (options.k < 1 || options.k > kNeighborsMax) {
    return invalid_argument("k is " + std::to_string(options.k) + "; it must be from 1 to " +
                            std::to_string(kNeighborsMax));
  }
  if (options.rerank > kNeighborsMax || options.candidates > kNeighborsMax) {
    return invalid_argument("at most " + std::to_string(kNeighborsMax) +
                            " candidates are scored again");
  }
  if (options.rerank > 0 && options_.kept == KeptVectors::kNone) {
    return invalid_argument("this index keeps no vectors that could be ranked again");
  }
  const Snapshot now = snapshot();
  std::optional<RowFilter> filter;
  if (options.filter != nullptr) filter.emplace(*options.filter);
  ScanTask task{&kernels_, nullptr, now.table.get(), now.version,
                filter.has_value() ? &*filter : nullptr};
  std::unique_lock pool_lock(pool_mutex_, std::try_to_lock);
  if (pool_lock.owns_lock() && pool_.size() > 1) task.pool = &pool_;
  const size_t d = options_.dimensions;
  const size_t count = queries.size() / d;
  const size_t most = std::max({options.k, options.rerank, options.candidates});
  const size_t batch_size = std::clamp(kBatchCandidatesMax / most, size_t{1}, kCodedRowsMax);
  Neighbors out;
  for (size_t first = 0; first < count; first += batch_size) {
    Batch batch;
    batch.first = first;
    batch.count = std::min(batch_size, count - first);
    batch.queries = queries.subspan(first * d, batch.count * d);
    TRY_ASSIGN(const auto found, search_batch(task, batch, options));
    Neighbors part = to_neighbors(found);
    std::move(part.begin(), part.end(), std::back_inserter(out));
  }
  return out;
}

Result<Neighbors> VectorIndexImpl::range_search(std::span<const float> queries, float score,
                                                const IndexFilter* filter) const {
  TRY(check_queries(queries, filter));
  if (std::isnan(score)) return invalid_argument("the score of a range search is no number");
  const Snapshot now = snapshot();
  std::optional<RowFilter> rows;
  if (filter != nullptr) rows.emplace(*filter);
  ScanTask task{&kernels_, nullptr, now.table.get(), now.version,
                rows.has_value() ? &*rows : nullptr};
  std::unique_lock pool_lock(pool_mutex_, std::try_to_lock);
  if (pool_lock.owns_lock() && pool_.size() > 1) task.pool = &pool_;
  const size_t d = options_.dimensions;
  Neighbors out;
  for (size_t first = 0; first < queries.size() / d; ++first) {
    TRY_ASSIGN(const CodedQueries coded,
               now.table->coder->code_queries(kernels_, queries.data() + first * d, 1, false));
    TRY_ASSIGN(const auto found, scan_all(task, coded, kRangeResultsMax + 1,
                                          options_.metric == Metric::kL2 ? -score : score));
    if (found[0].size() > kRangeResultsMax) {
      return exhausted("query " + std::to_string(first) + " has more than " +
                       std::to_string(kRangeResultsMax) + " results; ask for a better score");
    }
    out.push_back(to_neighbors(found)[0]);
  }
  return out;
}

Status VectorIndexImpl::save(const std::string& path) {
  std::lock_guard lock(write_mutex_);
  const Snapshot now = snapshot();
  IndexContent content;
  content.options = options_;
  content.table = *now.table;
  content.vectors = now.vectors;
  content.removed = now.removed;
  return save_index_file(content, path, file_);
}

Status VectorIndexImpl::verify() const {
  const Snapshot now = snapshot();
  std::vector<float> vector(options_.dimensions);
  for (const ChunkView& view : now.table->chunks) {
    TRY(view.chunk->check());
    for (size_t row = 0; options_.kept != KeptVectors::kNone && row < view.all_rows(); ++row) {
      TRY(get_kept(options_.kept, view.holder(row).kept(view.row_in_holder(row)),
                   options_.dimensions, vector.data()));
    }
  }
  return ok_status();
}

IndexInfo VectorIndexImpl::info() const {
  const Snapshot now = snapshot();
  const CodeLayout& layout = now.table->coder->layout();
  IndexInfo info;
  info.options = options_;
  info.fitted = now.table->coder->transform().fitted();
  info.vectors = now.vectors;
  info.removed = now.removed;
  info.code_bytes = static_cast<double>(layout.block_bytes()) / kSearchBlock + sizeof(uint16_t) +
                    (options_.metric == Metric::kL2 ? sizeof(float) : 0);
  info.bytes_per_vector =
      info.code_bytes + static_cast<double>(sizeof(int64_t) * (1 + options_.attributes));
  info.kept_bytes = static_cast<double>(shape_of(options_, layout).kept_bytes());
  info.cpu_level = kernels_.level;
  for (const CodeGroup& group : layout.groups()) {
    info.groups.emplace_back(group.dims, static_cast<int>(group.bits));
  }
  return info;
}

}  // namespace kvikk
