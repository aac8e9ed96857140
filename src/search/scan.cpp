#include "search/scan.h"

#include <bit>

#include "base/check.h"

namespace kvikk {

namespace {

// Blocks that a kernel is given at a time: their sums for all queries stay in the second cache.
constexpr size_t kPieceBlocks = 16;
constexpr size_t kPieceRows = kPieceBlocks * kSearchBlock;

// What one thread needs.
struct Worker {
  std::vector<TopK> best;     // [queries]
  std::vector<float> sums;    // [queries, kPieceRows]
  std::vector<float> scores;  // [kPieceRows]
  CodedQueries picked;        // those that look into a list
  Status status;
};

// Queries of one call of a kernel, and whose they are.
struct QueryTile {
  const CodedQueries* coded;
  const uint32_t* numbers;  // [coded->count] of the batch, or null: their places
  size_t number(size_t q) const { return numbers == nullptr ? q : numbers[q]; }
};

// Rows [first, first + rows) of a chunk; row_base is the view's number of its first row.
struct Piece {
  const Chunk* chunk;
  size_t first;
  size_t rows;
  uint32_t view;
  size_t row_base;
};

class Scanner {
 public:
  explicit Scanner(const ScanTask& task) : task_(task) {}

  void scan_view(uint32_t view, const QueryTile& tile, Worker& worker) const {
    const ChunkView& chunks = task_.table->chunks[view];
    scan_chunk({chunks.chunk.get(), 0, chunks.rows, view, 0}, tile, worker);
    if (chunks.tail_rows > 0) {
      scan_chunk({chunks.tail.get(), 0, chunks.tail_rows, view, chunks.rows}, tile, worker);
    }
  }
  void scan_list(uint32_t list, std::span<const uint32_t> numbers, const CodedQueries& queries,
                 const ListProbes& probes, Worker& worker) const {
    queries.pick(numbers, worker.picked);
    for (size_t i = 0; i < numbers.size(); ++i) {
      worker.picked.constants[i] += probes.offset(numbers[i], list);
    }
    const QueryTile tile{&worker.picked, numbers.data()};
    for (uint32_t v = task_.table->newest[list]; v != kNoChunk; v = task_.table->chunks[v].older) {
      scan_view(v, tile, worker);
    }
  }

 private:
  void scan_chunk(const Piece& whole, const QueryTile& tile, Worker& worker) const {
    if (whole.rows == 0 || !worker.status.ok()) return;
    worker.status = whole.chunk->check();
    if (!worker.status.ok()) return;
    for (size_t first = 0; first < whole.rows; first += kPieceRows) {
      Piece piece = whole;
      piece.first = first;
      piece.rows = std::min(kPieceRows, whole.rows - first);
      if (task_.filter == nullptr) {
        scan_piece(piece, nullptr, tile, worker);
      } else {
        scan_filtered(piece, tile, worker);
      }
    }
  }

  // Only runs of blocks in which something passes are scanned.
  void scan_filtered(const Piece& piece, const QueryTile& tile, Worker& worker) const {
    uint16_t passing[kPieceBlocks];
    const size_t blocks = (piece.rows + kSearchBlock - 1) / kSearchBlock;
    for (size_t b = 0; b < blocks; ++b) {
      passing[b] = task_.filter->mask(*piece.chunk, piece.first + b * kSearchBlock);
    }
    for (size_t begin = 0; begin < blocks;) {
      if (passing[begin] == 0) {
        ++begin;
        continue;
      }
      size_t end = begin + 1;
      while (end < blocks && passing[end] != 0) ++end;
      Piece run = piece;
      run.first = piece.first + begin * kSearchBlock;
      run.rows = std::min(piece.rows, end * kSearchBlock) - begin * kSearchBlock;
      scan_piece(run, passing + begin, tile, worker);
      begin = end;
    }
  }

  // passing: [blocks], or null when all rows do.
  void scan_piece(const Piece& piece, const uint16_t* passing, const QueryTile& tile,
                  Worker& worker) const {
    const size_t block = piece.first / kSearchBlock;
    SearchScanArgs scan = tile.coded->scan_args();
    scan.blocks = (piece.rows + kSearchBlock - 1) / kSearchBlock;
    scan.top = piece.chunk->top(block);
    scan.rest = piece.chunk->rest(block);
    scan.top_stride = task_.table->coder->layout().top_bytes();
    scan.rest_stride = task_.table->coder->layout().rest_bytes();
    scan.sums = worker.sums.data();
    scan.sum_stride = kPieceRows;
    task_.kernels->search_scan(scan);
    SearchSelectArgs select;
    uint16_t masks[kPieceBlocks];
    select.scales = piece.chunk->scales() + piece.first;
    if (piece.chunk->norms() != nullptr) select.norms = piece.chunk->norms() + piece.first;
    select.blocks = scan.blocks;
    select.scores = worker.scores.data();
    select.masks = masks;
    for (size_t q = 0; q < tile.coded->count; ++q) {
      TopK& best = worker.best[tile.number(q)];
      select.sums = worker.sums.data() + q * kPieceRows;
      select.constant = tile.coded->constants[q];
      select.threshold = best.threshold();
      task_.kernels->search_select(select);
      for (size_t b = 0; b < scan.blocks; ++b) {
        unsigned mask = masks[b];
        if (passing != nullptr) mask &= passing[b];
        if (mask != 0) offer(piece, b, mask, worker.scores.data(), best);
      }
    }
  }

  void offer(const Piece& piece, size_t block, unsigned mask, const float* scores,
             TopK& best) const {
    const bool has_dead = piece.chunk->has_dead();
    for (; mask != 0; mask &= mask - 1) {
      const size_t at = block * kSearchBlock + static_cast<size_t>(std::countr_zero(mask));
      if (at >= piece.rows) return;
      const size_t row = piece.first + at;
      if (has_dead && piece.chunk->died(row) <= task_.version) continue;
      best.offer({scores[at], piece.view, piece.chunk->id(row),
                  static_cast<uint32_t>(piece.row_base + row)});
    }
  }

  const ScanTask& task_;
};

// What a thread does at a time: a chunk for all queries, or a list for some.
struct Part {
  uint32_t place;
  std::span<const uint32_t> queries;
};

std::vector<Part> parts_of(const ListProbes& probes) {
  std::vector<Part> parts;
  for (uint32_t list = 0; list < probes.queries.size(); ++list) {
    std::span<const uint32_t> left = probes.queries[list];
    while (!left.empty()) {
      const size_t count = std::min(left.size(), kSearchQueriesMax);
      parts.push_back({list, left.first(count)});
      left = left.subspan(count);
    }
  }
  return parts;
}

}  // namespace

Result<std::vector<std::vector<Candidate>>> scan_all(const ScanTask& task,
                                                     const CodedQueries& queries, size_t k,
                                                     float floor, const ListProbes* probes) {
  CHECK(probes != nullptr || queries.count <= kSearchQueriesMax);
  const size_t threads = task.pool == nullptr ? 1 : static_cast<size_t>(task.pool->size());
  std::vector<Worker> workers(threads);
  for (Worker& worker : workers) {
    worker.best.assign(queries.count, TopK(k, floor));
    worker.sums.resize(std::min(queries.count, kSearchQueriesMax) * kPieceRows);
    worker.scores.resize(kPieceRows);
  }
  const Scanner scanner(task);
  std::vector<Part> parts;
  if (probes == nullptr) {
    for (uint32_t v = 0; v < task.table->chunks.size(); ++v) parts.push_back({v, {}});
  } else {
    parts = parts_of(*probes);
  }
  const auto scan = [&](size_t p, int thread) {
    Worker& worker = workers[static_cast<size_t>(thread)];
    if (probes == nullptr) {
      scanner.scan_view(parts[p].place, {&queries, nullptr}, worker);
    } else {
      scanner.scan_list(parts[p].place, parts[p].queries, queries, *probes, worker);
    }
  };
  if (task.pool == nullptr) {
    for (size_t p = 0; p < parts.size(); ++p) scan(p, 0);
  } else {
    task.pool->parallel_for(parts.size(), scan);
  }
  for (const Worker& worker : workers) TRY(worker.status);
  std::vector<std::vector<Candidate>> out;
  for (size_t q = 0; q < queries.count; ++q) {
    for (size_t t = 1; t < threads; ++t) workers[0].best[q].take(workers[t].best[q]);
    out.push_back(workers[0].best[q].finish());
  }
  return out;
}

void rescore(const ScanTask& task, const CodedQueries& queries, size_t query,
             const ListProbes* probes, std::vector<Candidate>& candidates) {
  const CodeLayout& layout = task.table->coder->layout();
  SearchScanArgs scan = queries.scan_args();
  scan.queries += query * queries.stride;
  scan.code_sums += query * queries.classes;
  scan.steps += query * queries.classes;
  scan.first += query;
  scan.query_count = 1;
  scan.blocks = 1;
  scan.top_stride = layout.top_bytes();
  scan.rest_stride = layout.rest_bytes();
  float sums[kSearchBlock];
  float scores[kSearchBlock];
  uint16_t mask = 0;
  scan.sums = sums;
  scan.sum_stride = kSearchBlock;
  for (Candidate& candidate : candidates) {
    const ChunkView& view = task.table->chunks[candidate.chunk];
    const Chunk& chunk = view.holder(candidate.row);
    const size_t row = view.row_in_holder(candidate.row);
    const size_t block = row / kSearchBlock;
    scan.top = chunk.top(block);
    scan.rest = chunk.rest(block);
    task.kernels->search_scan(scan);
    SearchSelectArgs select;
    select.sums = sums;
    select.scales = chunk.scales() + block * kSearchBlock;
    if (chunk.norms() != nullptr) select.norms = chunk.norms() + block * kSearchBlock;
    select.blocks = 1;
    select.constant = queries.constants[query];
    if (probes != nullptr) select.constant += probes->offset(query, view.list);
    select.scores = scores;
    select.masks = &mask;
    task.kernels->search_select(select);
    candidate.score = scores[row % kSearchBlock];
  }
}

}  // namespace kvikk
