#include "search/vector_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/cpu_features.h"
#include "search/fit.h"

namespace kvikk {

namespace {

constexpr size_t kCandidatesDefault = 64;  // of a staged search
constexpr size_t kCandidatesPerNeighbor = 6;
// Lists that are looked into next when the first ones held fewer than k: that many times as many.
constexpr size_t kProbesGrowth = 4;
// Queries of one pass over the lists: the more, the more of them meet in a list.
constexpr size_t kListQueriesMax = 1024;
constexpr size_t kProbeQueriesMax = 256;  // that are tried to choose a number of probes
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

// f(0) + ... + f(count - 1), in eight sums that do not wait for each other.
template <class F>
double sum_of(size_t count, F&& f) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (size_t s = 0; s < kSums; ++s) sums[s] += f(i + s);
  }
  for (; i < count; ++i) sums[0] += f(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double square(double x) { return x * x; }

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
  content.table =
      IndexTable(std::make_shared<const VectorCoder>(VectorCoder::oblivious(
                     options.dimensions, static_cast<size_t>(options.bits), options.metric)),
                 nullptr);
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

// Inner products of the batch with the centroids: [batch.count, lists->stride()].
Status VectorIndexImpl::rank_lists(const IndexTable& table, const Batch& batch,
                                   std::vector<float>& products) const {
  std::vector<float> ready;
  std::vector<double> squares;
  TRY(table.coder->make_ready(batch.queries.data(), batch.count, batch.first, "query", ready,
                              squares));
  table.lists->products(kernels_, ready.data(), batch.count, products);
  return ok_status();
}

// The best k of each query. With lists (offsets, or null): in options.probes of them, or more until
// options.k are found.
Result<VectorIndexImpl::Found> VectorIndexImpl::scan_batch(const ScanTask& task,
                                                           const CodedQueries& coded, size_t k,
                                                           const SearchOptions& options,
                                                           ListProbes* offsets) const {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  if (offsets == nullptr) return scan_all(task, coded, k, kLowest, nullptr);
  const VectorLists& lists = *offsets->lists;
  std::vector<uint32_t> looking(coded.count);
  std::iota(looking.begin(), looking.end(), 0u);
  Found found(coded.count);
  size_t first = 0;
  size_t last = options.probes > 0 ? std::min(options.probes, lists.count()) : lists.probes();
  while (!looking.empty()) {
    offsets->queries.assign(lists.count(), {});
    for (const uint32_t q : looking) {
      const float* products = offsets->products + q * lists.stride();
      for (const uint32_t list : lists.best(products, options_.metric, first, last)) {
        offsets->queries[list].push_back(q);
      }
    }
    TRY_ASSIGN(Found more, scan_all(task, coded, k, kLowest, offsets));
    std::vector<uint32_t> still;
    for (const uint32_t q : looking) {
      found[q].insert(found[q].end(), more[q].begin(), more[q].end());
      if (found[q].size() < options.k && last < lists.count()) still.push_back(q);
    }
    looking = std::move(still);
    first = last;
    last = std::min(lists.count(), last * kProbesGrowth);
  }
  for (std::vector<Candidate>& candidates : found) {
    std::sort(candidates.begin(), candidates.end(), is_better);
    if (candidates.size() > k) candidates.resize(k);
  }
  return found;
}

Result<VectorIndexImpl::Found> VectorIndexImpl::search_batch(const ScanTask& task,
                                                             const Batch& batch,
                                                             const SearchOptions& options) const {
  const VectorCoder& coder = *task.table->coder;
  const float* queries = batch.queries.data();
  const size_t wanted = std::max(options.k, std::min(options.rerank, kNeighborsMax));
  ListProbes probes;
  std::vector<float> products;
  if (task.table->lists != nullptr) {
    TRY(rank_lists(*task.table, batch, products));
    probes.lists = task.table->lists.get();
    probes.products = products.data();
    probes.factor = score_factor();
  }
  ListProbes* const offsets = probes.lists != nullptr ? &probes : nullptr;
  Found found;
  if (options.staged) {
    const size_t candidates =
        std::max({options.candidates, wanted,
                  options.candidates > 0
                      ? size_t{0}
                      : std::max(kCandidatesDefault, kCandidatesPerNeighbor * options.k)});
    TRY_ASSIGN(const CodedQueries top, coder.code_queries(kernels_, queries, batch.count, true));
    TRY_ASSIGN(found, scan_batch(task, top, candidates, options, offsets));
    TRY_ASSIGN(const CodedQueries whole, coder.code_queries(kernels_, queries, batch.count, false));
    const auto score = [&](size_t q, int) {
      rescore(task, whole, q, offsets, found[q]);
      std::sort(found[q].begin(), found[q].end(), is_better);
    };
    if (task.pool != nullptr) {
      task.pool->parallel_for(batch.count, score);
    } else {
      for (size_t q = 0; q < batch.count; ++q) score(q, 0);
    }
  } else {
    TRY_ASSIGN(const CodedQueries whole, coder.code_queries(kernels_, queries, batch.count, false));
    TRY_ASSIGN(found, scan_batch(task, whole, wanted, options, offsets));
  }
  for (size_t q = 0; q < batch.count; ++q) {
    if (found[q].size() > wanted) found[q].resize(wanted);
    if (options.rerank > 0) TRY(rerank(task, queries + q * options_.dimensions, found[q]));
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
    const double score =
        options_.metric == Metric::kL2
            ? -sum_of(d, [&](size_t i) { return square(double{query[i]} - vector[i]); })
            : sum_of(d, [&](size_t i) { return double{query[i]} * vector[i]; });
    candidate.score = static_cast<float>(score / length);
  }
  std::sort(found.begin(), found.end(), is_better);
  return ok_status();
}

Neighbors VectorIndexImpl::to_neighbors(const Found& found) const {
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

Status VectorIndexImpl::check_search(std::span<const float> queries,
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
  return ok_status();
}

Status VectorIndexImpl::search_all(std::span<const float> queries, const SearchOptions& options,
                                   const Take& take) const {
  TRY(check_search(queries, options));
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
  const size_t together = now.table->lists != nullptr ? kListQueriesMax : kCodedRowsMax;
  const size_t batch_size = std::clamp(kBatchCandidatesMax / most, size_t{1}, together);
  for (size_t first = 0; first < count; first += batch_size) {
    Batch batch;
    batch.first = first;
    batch.count = std::min(batch_size, count - first);
    batch.queries = queries.subspan(first * d, batch.count * d);
    TRY_ASSIGN(const Found found, search_batch(task, batch, options));
    TRY(take(*now.table, batch, found));
  }
  return ok_status();
}

Result<Neighbors> VectorIndexImpl::search(std::span<const float> queries,
                                          const SearchOptions& options) const {
  Neighbors out;
  TRY(search_all(queries, options, [&](const IndexTable&, const Batch&, const Found& found) {
    Neighbors part = to_neighbors(found);
    std::move(part.begin(), part.end(), std::back_inserter(out));
    return ok_status();
  }));
  return out;
}

Result<size_t> VectorIndexImpl::probes_for(std::span<const float> queries, double recall,
                                           const SearchOptions& options) const {
  if (!(recall > 0 && recall <= 1)) {
    return invalid_argument("a recall is above 0 and at most 1, not " + std::to_string(recall));
  }
  TRY(check_search(queries, options));
  const size_t d = options_.dimensions;
  std::vector<float> some;
  for (const size_t row : sample_rows(queries.size() / d, kProbeQueriesMax)) {
    some.insert(some.end(), &queries[row * d], &queries[row * d] + d);
  }
  SearchOptions all = options;
  all.probes = kIndexListsMax;
  std::vector<uint32_t> places;
  const auto take = [&](const IndexTable& table, const Batch& batch, const Found& found) -> Status {
    if (table.lists == nullptr) return invalid_argument("this index has no lists");
    const VectorLists& lists = *table.lists;
    std::vector<float> products;
    TRY(rank_lists(table, batch, products));
    for (size_t q = 0; q < found.size(); ++q) {
      const auto place = lists.places(&products[q * lists.stride()], options_.metric);
      for (const Candidate& c : found[q]) places.push_back(place[table.chunks[c.chunk].list]);
    }
    return ok_status();
  };
  TRY(search_all(some, all, take));
  return probes_for_places(std::move(places), recall);
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
    ListProbes probes;
    std::vector<float> products;
    if (now.table->lists != nullptr) {
      TRY(rank_lists(*now.table, {queries.subspan(first * d, d), 1, first}, products));
      probes = {{}, now.table->lists.get(), products.data(), score_factor()};
      probes.queries.assign(probes.lists->count(), {0});
    }
    TRY_ASSIGN(const Found found, scan_all(task, coded, kRangeResultsMax + 1,
                                           options_.metric == Metric::kL2 ? -score : score,
                                           probes.lists != nullptr ? &probes : nullptr));
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
  if (now.table->lists != nullptr) {
    info.lists = now.table->lists->count();
    info.probes = now.table->lists->probes();
  }
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
