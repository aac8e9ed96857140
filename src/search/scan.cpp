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
  Status status;
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
  Scanner(const ScanTask& task, const CodedQueries& queries) : task_(task), queries_(queries) {}

  void scan_view(uint32_t view, Worker& worker) const {
    const ChunkView& chunks = task_.table->chunks[view];
    scan_chunk({chunks.chunk.get(), 0, chunks.rows, view, 0}, worker);
    if (chunks.tail_rows > 0) {
      scan_chunk({chunks.tail.get(), 0, chunks.tail_rows, view, chunks.rows}, worker);
    }
  }

 private:
  void scan_chunk(const Piece& whole, Worker& worker) const {
    if (whole.rows == 0 || !worker.status.ok()) return;
    worker.status = whole.chunk->check();
    if (!worker.status.ok()) return;
    for (size_t first = 0; first < whole.rows; first += kPieceRows) {
      Piece piece = whole;
      piece.first = first;
      piece.rows = std::min(kPieceRows, whole.rows - first);
      if (task_.filter == nullptr) {
        scan_piece(piece, nullptr, worker);
      } else {
        scan_filtered(piece, worker);
      }
    }
  }

  // Only runs of blocks in which something passes are scanned.
  void scan_filtered(const Piece& piece, Worker& worker) const {
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
      scan_piece(run, passing + begin, worker);
      begin = end;
    }
  }

  // passing: [blocks], or null when all rows do.
  void scan_piece(const Piece& piece, const uint16_t* passing, Worker& worker) const {
    const size_t block = piece.first / kSearchBlock;
    SearchScanArgs scan = queries_.scan_args();
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
    for (size_t q = 0; q < queries_.count; ++q) {
      select.sums = worker.sums.data() + q * kPieceRows;
      select.constant = queries_.constants[q];
      select.threshold = worker.best[q].threshold();
      task_.kernels->search_select(select);
      for (size_t b = 0; b < scan.blocks; ++b) {
        unsigned mask = masks[b];
        if (passing != nullptr) mask &= passing[b];
        if (mask != 0) offer(piece, b, mask, worker.scores.data(), worker.best[q]);
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
  const CodedQueries& queries_;
};

}  // namespace

Result<std::vector<std::vector<Candidate>>> scan_all(const ScanTask& task,
                                                     const CodedQueries& queries, size_t k,
                                                     float floor) {
  const size_t threads = task.pool == nullptr ? 1 : static_cast<size_t>(task.pool->size());
  std::vector<Worker> workers(threads);
  for (Worker& worker : workers) {
    worker.best.assign(queries.count, TopK(k, floor));
    worker.sums.resize(queries.count * kPieceRows);
    worker.scores.resize(kPieceRows);
  }
  const Scanner scanner(task, queries);
  const size_t views = task.table->chunks.size();
  if (task.pool == nullptr) {
    for (size_t v = 0; v < views; ++v) scanner.scan_view(static_cast<uint32_t>(v), workers[0]);
  } else {
    task.pool->parallel_for(views, [&](size_t v, int thread) {
      scanner.scan_view(static_cast<uint32_t>(v), workers[static_cast<size_t>(thread)]);
    });
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
             std::vector<Candidate>& candidates) {
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
    select.scores = scores;
    select.masks = &mask;
    task.kernels->search_select(select);
    candidate.score = scores[row % kSearchBlock];
  }
}

}  // namespace kvikk
