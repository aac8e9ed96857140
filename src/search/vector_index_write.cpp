// The changes of an index: everything here runs with the write mutex held, and becomes visible to
// readers in publish(), whole.

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "codec/half_scale.h"
#include "search/dot.h"
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
  std::vector<float> unit(d);
  to_unit(vector, d, unit.data());
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
    const float* vector = vectors.data() + r * d;
    const double squares = double_dot(vector, vector, d);
    if (!(squares <= kVectorLengthMax * kVectorLengthMax)) {
      return invalid_argument("vector " + std::to_string(r) +
                              (std::isfinite(squares) ? " is too long: its length is beyond 1e9"
                                                      : " has a NaN or an infinity"));
    }
    if (options_.kept == KeptVectors::kHalf && options_.metric != Metric::kCosine &&
        std::any_of(vector, vector + d, [](float x) { return std::abs(x) > kHalfMax; })) {
      return invalid_argument("vector " + std::to_string(r) +
                              " has a number beyond 65504, the largest half float");
    }
  }
  return ok_status();
}

// A chunk of the list to which rows can be added behind its own, which are all in the chunk then:
// the list's newest, or that in larger memory, or a new one.
Result<uint32_t> VectorIndexImpl::open_chunk(IndexTable& table, uint32_t list, size_t wanted,
                                             const ChunkShape& shape) {
  // Without lists there is one open chunk, and room in it costs nothing until it is used.
  const size_t least = table.lists == nullptr ? kChunkRowsMax : kSearchBlock;
  const auto room = [&](size_t rows) {
    return std::clamp(std::bit_ceil(rows), least, kChunkRowsMax);
  };
  const uint32_t at = table.newest[list];
  if (at != kNoChunk) {
    ChunkView& view = table.chunks[at];
    const size_t rows = view.all_rows();
    const size_t most = view.chunk->mapped() ? 0 : view.chunk->rows_max();
    // A small chunk of a file is taken up again, so that many small saves do not leave many chunks.
    const bool moves =
        most == 0 ? rows < kChunkRowsMax / 2 : rows + wanted > most && most < kChunkRowsMax;
    if (moves) {
      TRY(view.chunk->check());
      TRY_ASSIGN(auto fresh, Chunk::allocate(shape, room(rows + wanted)));
      fresh->copy_blocks(*view.chunk, 0, view.rows, 0);
      if (view.tail_rows > 0) {
        fresh->copy_blocks(*view.tail, 0, view.tail_rows, view.rows / kSearchBlock);
      }
      view.chunk = std::move(fresh);
    } else if (view.tail_rows > 0) {
      view.chunk->copy_blocks(*view.tail, 0, view.tail_rows, view.rows / kSearchBlock);
    }
    if (moves || rows < most) {
      view.rows = rows;
      view.tail_rows = 0;
      view.tail = nullptr;
      return at;
    }
  }
  ChunkView view;
  TRY_ASSIGN(view.chunk, Chunk::allocate(shape, room(wanted)));
  view.list = list;
  table.push(std::move(view));
  return table.newest[list];
}

// Rows of an open chunk that fill no block become its tail.
Status VectorIndexImpl::close_chunk(IndexTable& table, uint32_t at, const ChunkShape& shape) {
  ChunkView& view = table.chunks[at];
  view.tail_rows = view.rows % kSearchBlock;
  view.rows -= view.tail_rows;
  if (view.tail_rows == 0) return ok_status();
  TRY_ASSIGN(view.tail, Chunk::allocate(shape, kSearchBlock));
  view.tail->copy_blocks(*view.chunk, view.rows / kSearchBlock, view.tail_rows, 0);
  return ok_status();
}

void VectorIndexImpl::put_rows(const IndexTable& table, const AddedRows& rows,
                               const PutTask& task) {
  const size_t d = options_.dimensions;
  const size_t kept_bytes = shape_of(options_, table.coder->layout()).kept_bytes();
  const size_t count = task.numbers.size();
  std::vector<float> gathered;  // without lists the rows follow each other
  const float* from = rows.vectors.data() + task.numbers[0] * d;
  if (table.lists != nullptr) {
    for (const size_t n : task.numbers) {
      gathered.insert(gathered.end(), &rows.vectors[n * d], &rows.vectors[n * d] + d);
    }
    from = gathered.data();
  }
  std::vector<CodedVector> coded;
  const float* centre = table.centre(task.list);
  CHECK(table.coder->encode(kernels_, from, count, 0, centre, coded).ok());  // checked_added
  std::vector<uint8_t> made(kept_bytes);
  for (size_t i = 0; i < count; ++i) {
    const size_t n = task.numbers[i];
    const uint8_t* kept = kept_bytes > 0 ? made.data() : nullptr;
    if (rows.kept != nullptr) {
      kept = rows.kept + n * kept_bytes;
    } else if (kept_bytes > 0) {
      put_ready(options_, from + i * d, made.data());
    }
    task.chunk->put(table.coder->layout(), task.row + i, coded[i], rows.ids[n],
                    rows.attributes.data() + n * options_.attributes, kept);
  }
}

std::vector<uint32_t> VectorIndexImpl::lists_of(const VectorLists& lists,
                                                std::span<const float> vectors) {
  if (options_.metric != Metric::kCosine) return lists.assign(kernels_, pool_, vectors);
  const size_t d = options_.dimensions;
  std::vector<float> units(vectors.size());
  for (size_t at = 0; at < vectors.size(); at += d) to_unit(&vectors[at], d, &units[at]);
  return lists.assign(kernels_, pool_, units);
}

Status VectorIndexImpl::append(IndexTable& table, const AddedRows& rows,
                               std::vector<RowPlace>& places) {
  const ChunkShape shape = shape_of(options_, table.coder->layout());
  const size_t n = rows.ids.size();
  std::unique_lock pool_lock(pool_mutex_);
  std::vector<uint32_t> list(n);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  if (table.lists != nullptr) {
    list = lists_of(*table.lists, rows.vectors);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return list[a] < list[b]; });
  }
  places.resize(n);
  std::vector<PutTask> tasks;
  std::vector<uint32_t> opened;
  for (size_t done = 0; done < n;) {
    const uint32_t to = list[order[done]];
    size_t end = done + 1;
    while (end < n && list[order[end]] == to) ++end;
    TRY_ASSIGN(const uint32_t at, open_chunk(table, to, end - done, shape));
    opened.push_back(at);
    ChunkView& view = table.chunks[at];
    const size_t count = std::min(end - done, view.chunk->rows_max() - view.rows);
    const size_t block = (view.rows + kSearchBlock - 1) / kSearchBlock;
    view.chunk->clear_blocks(block, (view.rows + count + kSearchBlock - 1) / kSearchBlock - block);
    for (size_t i = 0; i < count; i += kTaskRows) {
      tasks.push_back(
          {view.chunk.get(), view.rows + i, to,
           std::span<const size_t>(order).subspan(done + i, std::min(kTaskRows, count - i))});
    }
    for (size_t i = 0; i < count; ++i) {
      places[order[done + i]] = {at, static_cast<uint32_t>(view.rows + i)};
    }
    view.rows += count;
    done += count;
  }
  pool_.parallel_for(tasks.size(), [&](size_t t, int) { put_rows(table, rows, tasks[t]); });
  for (const uint32_t at : opened) TRY(close_chunk(table, at, shape));
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
  std::vector<RowPlace> places;
  TRY(append(table, {vectors, ids, attributes}, places));
  const auto at = [&](RowPlace place) { return id_at(table, place); };
  uint64_t replaced = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    RowPlace old;
    if (ids_.find(ids[i], at, old)) {
      ChunkView& view = table.chunks[old.chunk];
      view.holder(old.row).bury(view.row_in_holder(old.row), now.version + 1);
      ++replaced;
    }
    ids_.put(ids[i], places[i], at);
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

// Codes that fit ready rows, or what is left of them when they lie in lists.
Result<std::shared_ptr<const VectorCoder>> VectorIndexImpl::fitted(const VectorLists* lists,
                                                                   std::vector<float> rows) {
  const size_t d = options_.dimensions;
  std::unique_lock pool_lock(pool_mutex_);
  if (lists != nullptr) {
    const std::vector<uint32_t> list = lists->assign(kernels_, pool_, rows);
    for (size_t r = 0; r < list.size(); ++r) {
      const float* centre = lists->centroid(list[r]);
      for (size_t i = 0; i < d; ++i) rows[r * d + i] -= centre[i];
    }
  }
  TRY_ASSIGN(VectorCoder coder, fit_coder(kernels_, pool_, rows, d,
                                          static_cast<size_t>(options_.bits), options_.metric));
  return std::shared_ptr<const VectorCoder>(std::make_shared<VectorCoder>(std::move(coder)));
}

Status VectorIndexImpl::check_sample(std::span<const float> sample) const {
  if (sample.size() % options_.dimensions == 0) return ok_status();
  return invalid_argument("a sample has " + std::to_string(sample.size()) +
                          " numbers, not a multiple of the index's " +
                          std::to_string(options_.dimensions) + " dimensions");
}

Status VectorIndexImpl::fit(std::span<const float> sample) {
  std::lock_guard lock(write_mutex_);
  const Snapshot now = snapshot();
  if (!now.table->chunks.empty()) {
    return invalid_argument("an index is fitted while it is empty; this one holds " +
                            std::to_string(now.vectors + now.removed) + " vectors");
  }
  TRY(check_sample(sample));
  TRY_ASSIGN(std::vector<float> rows,
             ready_sample(sample, options_.dimensions, kFitVectorsMax, options_.metric));
  TRY_ASSIGN(const auto coder, fitted(now.table->lists.get(), std::move(rows)));
  publish(std::make_shared<const IndexTable>(coder, now.table->lists), 0, 0);
  return ok_status();
}

Status VectorIndexImpl::make_lists(std::span<const float> sample, size_t lists) {
  const size_t d = options_.dimensions;
  if (lists < 1 || lists > kIndexListsMax) {
    return invalid_argument("an index has 1 to " + std::to_string(kIndexListsMax) + " lists, not " +
                            std::to_string(lists));
  }
  std::lock_guard lock(write_mutex_);
  const Snapshot now = snapshot();
  const bool empty = now.table->chunks.empty();
  if (!empty && options_.kept == KeptVectors::kNone) {
    return unsupported("this index holds vectors and keeps none that could be coded again");
  }
  const bool is_fitted = now.table->coder->transform().fitted();
  if (empty && is_fitted) return invalid_argument("lists are made before codes are fitted");
  TRY(check_sample(sample));
  TRY_ASSIGN(std::vector<float> rows,
             ready_sample(sample, d, list_sample_rows(lists, d), options_.metric));
  std::shared_ptr<const VectorLists> made;
  {
    std::unique_lock pool_lock(pool_mutex_);
    TRY_ASSIGN(VectorLists centres,
               VectorLists::make(kernels_, pool_, rows, d, lists, options_.metric));
    made = std::make_shared<const VectorLists>(std::move(centres));
  }
  std::shared_ptr<const VectorCoder> coder = now.table->coder;
  if (is_fitted) {
    TRY_ASSIGN(coder, fitted(made.get(), std::move(rows)));
  }
  IndexTable table(std::move(coder), std::move(made));
  if (!empty) return code_again(std::move(table));
  publish(std::make_shared<const IndexTable>(std::move(table)), 0, 0);
  return ok_status();
}

// New chunks of all rows that live, coded from the vectors that are kept.
Status VectorIndexImpl::code_again(IndexTable table) {
  const Snapshot now = snapshot();
  const size_t d = options_.dimensions;
  const size_t kept_bytes = shape_of(options_, table.coder->layout()).kept_bytes();
  std::vector<float> vectors;
  std::vector<int64_t> ids;
  std::vector<int64_t> attributes;
  std::vector<uint8_t> kept;
  std::vector<RowPlace> places;
  const auto flush = [&]() -> Status {
    if (ids.empty()) return ok_status();
    TRY(append(table, {vectors, ids, attributes, kept.data()}, places));
    vectors.clear();
    ids.clear();
    attributes.clear();
    kept.clear();
    return ok_status();
  };
  for (const ChunkView& view : now.table->chunks) {
    TRY(view.chunk->check());
    for (size_t r = 0; r < view.all_rows(); ++r) {
      const Chunk& holder = view.holder(r);
      const size_t from = view.row_in_holder(r);
      if (holder.died(from) != kAlive) continue;
      vectors.resize(vectors.size() + d);
      TRY(get_kept(options_.kept, holder.kept(from), d, vectors.data() + vectors.size() - d));
      kept.insert(kept.end(), holder.kept(from), holder.kept(from) + kept_bytes);
      ids.push_back(holder.id(from));
      for (size_t a = 0; a < options_.attributes; ++a) {
        attributes.push_back(holder.attribute(a)[from]);
      }
      if (ids.size() == kChunkRowsMax) TRY(flush());
    }
  }
  TRY(flush());
  publish(std::make_shared<const IndexTable>(std::move(table)), now.vectors, 0);
  ids_known_ = false;
  return know_ids();
}

Status VectorIndexImpl::compact() {
  std::lock_guard lock(write_mutex_);
  const Snapshot now = snapshot();
  IndexTable table(now.table->coder, now.table->lists);
  const CodeLayout& layout = table.coder->layout();
  const ChunkShape shape = shape_of(options_, layout);
  std::vector<int64_t> attributes(options_.attributes);
  for (const ChunkView& view : now.table->chunks) {
    TRY(view.chunk->check());
    uint32_t at = kNoChunk;
    for (size_t r = 0; r < view.all_rows(); ++r) {
      const Chunk& holder = view.holder(r);
      const size_t from = view.row_in_holder(r);
      if (holder.died(from) != kAlive) continue;
      if (at == kNoChunk || table.chunks[at].rows == table.chunks[at].chunk->rows_max()) {
        TRY_ASSIGN(at, open_chunk(table, view.list, view.all_rows() - r, shape));
      }
      ChunkView& to = table.chunks[at];
      for (size_t a = 0; a < attributes.size(); ++a) attributes[a] = holder.attribute(a)[from];
      const uint8_t* kept = options_.kept == KeptVectors::kNone ? nullptr : holder.kept(from);
      to.chunk->put(layout, to.rows++, holder.get(layout, from), holder.id(from), attributes.data(),
                    kept);
    }
  }
  for (uint32_t at = 0; at < table.chunks.size(); ++at) TRY(close_chunk(table, at, shape));
  publish(std::make_shared<const IndexTable>(std::move(table)), now.vectors, 0);
  ids_known_ = false;
  return know_ids();
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
  TRY_ASSIGN(std::vector<float> rows, ready_sample(sample, d, kFitVectorsMax, options_.metric));
  TRY_ASSIGN(auto coder, fitted(now.table->lists.get(), std::move(rows)));
  return code_again(IndexTable(std::move(coder), now.table->lists));
}

}  // namespace kvikk
