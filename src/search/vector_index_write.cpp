// The changes of an index: everything here runs with the write mutex held, and becomes visible to
// readers in publish(), whole.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "search/fit.h"
#include "search/vector_index.h"

namespace kvikk {

namespace {

// Rows of one task of the thread pool.
constexpr size_t kTaskRows = kCodedRowsMax;

// A row as the index keeps it: of unit length for kCosine.
void put_ready(const IndexOptions& options, const float* vector, uint8_t* out) {
  const size_t d = options.dimensions;
  if (options.metric != Metric::kCosine) return put_kept(options.kept, vector, d, out);
  double squares = 0;
  for (size_t i = 0; i < d; ++i) squares += static_cast<double>(vector[i]) * vector[i];
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : 1;
  std::vector<float> unit(d);
  for (size_t i = 0; i < d; ++i) unit[i] = static_cast<float>(vector[i] * factor);
  put_kept(options.kept, unit.data(), d, out);
}

}  // namespace

int64_t VectorIndexImpl::id_at(const IndexTable& table, RowPlace at) const {
  const ChunkView& view = table.chunks[at.chunk];
  return view.holder(at.row).id(view.row_in_holder(at.row));
}

// An opened file is searched without a map of its ids; the first change makes it.
Status VectorIndexImpl::know_ids() {
  if (ids_known_) return ok_status();
  const IndexTable& table = *snapshot().table;
  const auto at = [&](RowPlace place) { return id_at(table, place); };
  ids_.clear();
  for (size_t c = 0; c < table.chunks.size(); ++c) {
    const ChunkView& view = table.chunks[c];
    TRY(view.chunk->check());
    for (size_t row = 0; row < view.all_rows(); ++row) {
      if (view.holder(row).died(view.row_in_holder(row)) != kAlive) continue;
      const RowPlace place{static_cast<uint32_t>(c), static_cast<uint32_t>(row)};
      ids_.put(at(place), place, at);
    }
  }
  ids_known_ = true;
  return ok_status();
}

Status VectorIndexImpl::check_added(std::span<const float> vectors, std::span<const int64_t> ids,
                                    std::span<const int64_t> attributes) const {
  const size_t d = options_.dimensions;
  if (vectors.size() != ids.size() * d) {
    return invalid_argument(std::to_string(ids.size()) + " ids of " + std::to_string(d) +
                            " dimensions need " + std::to_string(ids.size() * d) +
                            " numbers, there are " + std::to_string(vectors.size()));
  }
  if (attributes.size() != ids.size() * options_.attributes) {
    return invalid_argument(std::to_string(ids.size()) + " vectors of this index need " +
                            std::to_string(ids.size() * options_.attributes) +
                            " attributes, there are " + std::to_string(attributes.size()));
  }
  for (size_t r = 0; r < ids.size(); ++r) {
    double squares = 0;
    double largest = 0;
    for (size_t i = 0; i < d; ++i) {
      const double x = vectors[r * d + i];
      squares += x * x;
      largest = std::max(largest, std::abs(x));
    }
    if (!(squares <= kVectorLengthMax * kVectorLengthMax)) {
      return invalid_argument("vector " + std::to_string(r) +
                              (std::isfinite(squares) ? " is too long: its length is beyond 1e9"
                                                      : " has a NaN or an infinity"));
    }
    if (options_.kept == KeptVectors::kHalf && options_.metric != Metric::kCosine &&
        largest > 65504) {
      return invalid_argument("vector " + std::to_string(r) +
                              " has a number beyond 65504, the largest half float");
    }
  }
  return ok_status();
}

// Makes the table's last chunk one that rows can be added to, with its tail in it. Returns how many
// rows it holds.
Result<size_t> VectorIndexImpl::open_last_chunk(IndexTable& table, const ChunkShape& shape) {
  if (!table.chunks.empty()) {
    ChunkView& last = table.chunks.back();
    const size_t rows = last.all_rows();
    if (!last.chunk->mapped() && rows < last.chunk->rows_max()) {
      if (last.tail_rows > 0) {
        last.chunk->copy_blocks(*last.tail, 0, last.tail_rows, last.rows / kSearchBlock);
      }
      return rows;
    }
    // A small chunk of a file is taken up again, so that many small saves do not leave many chunks.
    if (last.chunk->mapped() && rows < kChunkRowsMax / 2) {
      TRY(last.chunk->check());
      TRY_ASSIGN(auto fresh, Chunk::allocate(shape, kChunkRowsMax));
      fresh->copy_blocks(*last.chunk, 0, rows, 0);
      last.chunk = std::move(fresh);
      return rows;
    }
  }
  ChunkView view;
  TRY_ASSIGN(view.chunk, Chunk::allocate(shape, kChunkRowsMax));
  table.chunks.push_back(std::move(view));
  return size_t{0};
}

// The last chunk holds `rows` rows: those that fill no block become its tail.
Status VectorIndexImpl::close_last_chunk(IndexTable& table, const ChunkShape& shape, size_t rows) {
  ChunkView& last = table.chunks.back();
  last.tail_rows = rows % kSearchBlock;
  last.rows = rows - last.tail_rows;
  last.tail = nullptr;
  if (last.tail_rows == 0) return ok_status();
  TRY_ASSIGN(last.tail, Chunk::allocate(shape, kSearchBlock));
  last.tail->copy_blocks(*last.chunk, last.rows / kSearchBlock, last.tail_rows, 0);
  return ok_status();
}

void VectorIndexImpl::put_rows(const IndexTable& table, Chunk& chunk, size_t row,
                               std::span<const float> vectors, std::span<const int64_t> ids,
                               std::span<const int64_t> attributes) {
  const size_t d = options_.dimensions;
  const size_t kept_bytes = shape_of(options_, table.coder->layout()).kept_bytes();
  std::unique_lock pool_lock(pool_mutex_);
  pool_.parallel_for((ids.size() + kTaskRows - 1) / kTaskRows, [&](size_t task, int) {
    const size_t first = task * kTaskRows;
    const size_t count = std::min(kTaskRows, ids.size() - first);
    std::vector<CodedVector> coded;
    std::vector<uint8_t> kept(kept_bytes);
    const float* from = vectors.data() + first * d;
    CHECK(table.coder->encode(kernels_, from, count, first, coded).ok());  // checked_added
    for (size_t i = 0; i < count; ++i) {
      if (kept_bytes > 0) put_ready(options_, from + i * d, kept.data());
      chunk.put(table.coder->layout(), row + first + i, coded[i], ids[first + i],
                attributes.data() + (first + i) * options_.attributes,
                kept_bytes > 0 ? kept.data() : nullptr);
    }
  });
}

Status VectorIndexImpl::append(IndexTable& table, std::span<const float> vectors,
                               std::span<const int64_t> ids, std::span<const int64_t> attributes) {
  const size_t d = options_.dimensions;
  const size_t a = options_.attributes;
  const ChunkShape shape = shape_of(options_, table.coder->layout());
  for (size_t done = 0; done < ids.size();) {
    TRY_ASSIGN(const size_t row, open_last_chunk(table, shape));
    Chunk& chunk = *table.chunks.back().chunk;
    const size_t count = std::min(ids.size() - done, chunk.rows_max() - row);
    const size_t block = (row + kSearchBlock - 1) / kSearchBlock;
    chunk.clear_blocks(block, (row + count + kSearchBlock - 1) / kSearchBlock - block);
    put_rows(table, chunk, row, vectors.subspan(done * d, count * d), ids.subspan(done, count),
             attributes.subspan(done * a, count * a));
    TRY(close_last_chunk(table, shape, row + count));
    done += count;
  }
  return ok_status();
}

Status VectorIndexImpl::add(std::span<const float> vectors, std::span<const int64_t> ids,
                            std::span<const int64_t> attributes) {
  TRY(check_added(vectors, ids, attributes));
  if (ids.empty()) return ok_status();
  std::lock_guard lock(write_mutex_);
  TRY(know_ids());
  const Snapshot now = snapshot();
  IndexTable table = *now.table;
  size_t chunk = table.chunks.size();
  size_t row = 0;
  if (chunk > 0) {
    row = table.chunks.back().all_rows();
    --chunk;
  }
  TRY(append(table, vectors, ids, attributes));
  const auto at = [&](RowPlace place) { return id_at(table, place); };
  uint64_t replaced = 0;
  for (const int64_t id : ids) {
    if (row == table.chunks[chunk].all_rows()) {
      ++chunk;
      row = 0;
    }
    RowPlace old;
    if (ids_.find(id, at, old)) {
      ChunkView& view = table.chunks[old.chunk];
      view.holder(old.row).bury(view.row_in_holder(old.row), now.version + 1);
      ++replaced;
    }
    ids_.put(id, {static_cast<uint32_t>(chunk), static_cast<uint32_t>(row++)}, at);
  }
  publish(std::make_shared<const IndexTable>(std::move(table)), now.vectors + ids.size() - replaced,
          now.removed + replaced);
  return ok_status();
}

Result<size_t> VectorIndexImpl::remove(std::span<const int64_t> ids) {
  std::lock_guard lock(write_mutex_);
  TRY(know_ids());
  const Snapshot now = snapshot();
  const auto at = [&](RowPlace place) { return id_at(*now.table, place); };
  size_t removed = 0;
  for (const int64_t id : ids) {
    RowPlace place;
    if (!ids_.find(id, at, place)) continue;
    ids_.erase(id, at);
    const ChunkView& view = now.table->chunks[place.chunk];
    Chunk& holder = place.row < view.rows ? *view.chunk : *view.tail;
    holder.bury(view.row_in_holder(place.row), now.version + 1);
    ++removed;
  }
  publish(now.table, now.vectors - removed, now.removed + removed);
  return removed;
}

Status VectorIndexImpl::fit(std::span<const float> sample) {
  std::lock_guard lock(write_mutex_);
  const Snapshot now = snapshot();
  if (!now.table->chunks.empty()) {
    return invalid_argument("an index is fitted while it is empty; this one holds " +
                            std::to_string(now.vectors + now.removed) + " vectors");
  }
  if (sample.size() % options_.dimensions != 0) {
    return invalid_argument("a sample has " + std::to_string(sample.size()) +
                            " numbers, not a multiple of the index's " +
                            std::to_string(options_.dimensions) + " dimensions");
  }
  IndexTable table;
  {
    std::unique_lock pool_lock(pool_mutex_);
    TRY_ASSIGN(VectorCoder coder, fit_coder(kernels_, pool_, sample, options_.dimensions,
                                            static_cast<size_t>(options_.bits), options_.metric));
    table.coder = std::make_shared<const VectorCoder>(std::move(coder));
  }
  publish(std::make_shared<const IndexTable>(std::move(table)), 0, 0);
  return ok_status();
}

// New chunks of all rows that live. With a coder: of kept vectors, coded by it; without, their
// codes as they are.
Status VectorIndexImpl::rebuild(std::shared_ptr<const VectorCoder> coder) {
  TRY(know_ids());
  const Snapshot now = snapshot();
  const size_t d = options_.dimensions;
  IndexTable table;
  table.coder = coder != nullptr ? coder : now.table->coder;
  const CodeLayout& layout = table.coder->layout();
  const ChunkShape shape = shape_of(options_, layout);
  std::vector<CodedVector> coded(1);
  std::vector<float> vector(d);
  std::vector<int64_t> attributes(options_.attributes);
  size_t row = 0;
  for (const ChunkView& view : now.table->chunks) {
    TRY(view.chunk->check());
    for (size_t r = 0; r < view.all_rows(); ++r) {
      const Chunk& holder = view.holder(r);
      const size_t from = view.row_in_holder(r);
      if (holder.died(from) != kAlive) continue;
      if (coder != nullptr) {
        TRY(get_kept(options_.kept, holder.kept(from), d, vector.data()));
        TRY(coder->encode(kernels_, vector.data(), 1, r, coded));
      } else {
        coded[0] = holder.get(layout, from);
      }
      if (row == 0 || row == table.chunks.back().chunk->rows_max()) {
        if (row > 0) TRY(close_last_chunk(table, shape, row));
        TRY_ASSIGN(row, open_last_chunk(table, shape));
      }
      for (size_t a = 0; a < attributes.size(); ++a) attributes[a] = holder.attribute(a)[from];
      const uint8_t* kept = options_.kept == KeptVectors::kNone ? nullptr : holder.kept(from);
      table.chunks.back().chunk->put(layout, row++, coded[0], holder.id(from), attributes.data(),
                                     kept);
    }
  }
  if (row > 0) TRY(close_last_chunk(table, shape, row));
  publish(std::make_shared<const IndexTable>(std::move(table)), now.vectors, 0);
  ids_known_ = false;
  return know_ids();
}

Status VectorIndexImpl::compact() {
  std::lock_guard lock(write_mutex_);
  return rebuild(nullptr);
}

Status VectorIndexImpl::refit() {
  if (options_.kept == KeptVectors::kNone) {
    return unsupported("this index keeps no vectors that codes could be fitted to");
  }
  std::lock_guard lock(write_mutex_);
  const Snapshot now = snapshot();
  std::vector<std::pair<size_t, size_t>> alive;  // chunk, row
  for (size_t c = 0; c < now.table->chunks.size(); ++c) {
    const ChunkView& view = now.table->chunks[c];
    for (size_t row = 0; row < view.all_rows(); ++row) {
      if (view.holder(row).died(view.row_in_holder(row)) == kAlive) alive.emplace_back(c, row);
    }
  }
  const size_t d = options_.dimensions;
  std::vector<float> sample;
  for (const size_t i : sample_rows(alive.size(), kFitVectorsMax)) {
    const ChunkView& view = now.table->chunks[alive[i].first];
    const size_t row = alive[i].second;
    sample.resize(sample.size() + d);
    TRY(get_kept(options_.kept, view.holder(row).kept(view.row_in_holder(row)), d,
                 sample.data() + sample.size() - d));
  }
  std::shared_ptr<const VectorCoder> coder;
  {
    std::unique_lock pool_lock(pool_mutex_);
    TRY_ASSIGN(VectorCoder fitted, fit_coder(kernels_, pool_, sample, d,
                                             static_cast<size_t>(options_.bits), options_.metric));
    coder = std::make_shared<const VectorCoder>(std::move(fitted));
  }
  return rebuild(std::move(coder));
}

}  // namespace kvikk
