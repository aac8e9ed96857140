#pragma once
// Attention of the rows of a batch over the paged cache of their sequences.
//
// The work is cut at absolute positions: keys into chunks of 16 pages, whose partial results are
// merged in order, queries into tiles that stay inside one page of positions. Which thread takes
// which piece, how long the prompt's chunk is and who else is in the batch changes nothing.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "kv/sequence_kv.h"
#include "tensor/matrix.h"

namespace kvikk {

// Consecutive tokens of one sequence inside a batch.
struct Span {
  SequenceKv* sequence = nullptr;
  size_t first_row = 0;  // in the batch
  size_t rows = 0;
  size_t first_position = 0;
};

struct AttendLayer {
  size_t group = 0;  // of the pool's shape
  size_t layer_in_group = 0;
  size_t heads = 0;                // query heads; a multiple of the KV heads
  const float* queries = nullptr;  // [rows, queries_stride], scaled; head h at h * head_dim
  size_t queries_stride = 0;
  float* out = nullptr;  // [rows, out_stride]; head h at h * value_size
  size_t out_stride = 0;
  bool whole_span = false;       // rows see their whole span, not only what is before them;
                                 // not with coded caches
  float softcap = 0.0f;          // scores become softcap * tanh(score / softcap); 0: they stay
  const float* sinks = nullptr;  // [heads]: a score that takes its share of the softmax and adds
                                 // no value; null: none
};

class Attention {
 public:
  inline static constexpr size_t kChunkPages = 16;  // 1024 tokens a partial result
  inline static constexpr size_t kTileRows = 64;  // query rows (tokens x heads of the group) a tile
  // Rows that a kernel computes together: a tile is best a multiple of it.
  inline static constexpr size_t kKernelRows = 12;

  // Buffers for tiles of `heads` query heads over `kv_heads`, for `threads` threads, sequences of
  // up to `context` tokens. head_dim: the larger of key and value. coded_dim: the largest
  // attend_dim() of the coders of the caches that will come, or 0.
  static Result<Attention> create(int threads, size_t heads, size_t kv_heads, size_t head_dim,
                                  size_t context, size_t coded_dim = 0);

  // Keys and values of all rows must already be stored.
  void run(Compute& compute, std::span<const Span> spans, const AttendLayer& layer);

 private:
  struct Tile {
    const Span* span;
    size_t kv_head;
    size_t first;  // row inside the span
    size_t tokens;
  };
  struct Partial {
    float* max;  // [rows]
    float* sum;  // [rows]
    float* acc;  // [rows, value_width]
  };

  // What the rows of a tile ask: made once, met by every piece of their history.
  struct Asked {
    size_t rows;
    float* queries;           // [rows, key_width]
    uint32_t* visible_begin;  // [rows]: the first position that a row sees
    uint32_t* visible_end;    // [rows]
    // Of coded caches (coder.h); the last three where attention runs in integers.
    float* prepared;  // [rows, query_floats()]
    float* scales;    // [rows]
    int32_t* sums;    // [rows][2]
    int8_t* bytes;    // [rows][2][width()]

    size_t first_page() const { return visible_begin[0] / kPageTokens; }
  };

  // The position behind the last one that a row of the tile sees.
  static size_t seen_end(const Tile& tile, const AttendLayer& layer) {
    return tile.span->first_position +
           (layer.whole_span ? tile.span->rows : tile.first + tile.tokens);
  }
  static void count_work(Compute& compute, std::span<const Span> spans, const AttendLayer& layer);
  void plan(std::span<const Span> spans, size_t kv_heads, size_t group_heads);
  void run_tile(Compute& compute, const Tile& tile, const AttendLayer& layer, int thread);
  void run_split(Compute& compute, const AttendLayer& layer);
  // Into the buffers' rows from `first_row` on.
  Asked ask(Compute& compute, const Tile& tile, const AttendLayer& layer, size_t first_row);
  // What all kernels take.
  static AttendRows kernel_rows(Compute& compute, const AttendLayer& layer, const Asked& asked,
                                Partial out, int thread);
  static void attend_pages(Compute& compute, const Tile& tile, const AttendLayer& layer,
                           const Asked& asked, size_t first_page, size_t end_page, Partial out,
                           int thread);
  static void attend_chunk(Compute& compute, const Tile& tile, const AttendLayer& layer,
                           const Asked& asked, size_t chunk, Partial out, int thread);
  // attend_coded.cpp
  static void ask_codes(Compute& compute, const Tile& tile, const AttendLayer& layer,
                        const Asked& asked);
  void attend_coded_chunk(Compute& compute, const Tile& tile, const AttendLayer& layer,
                          const Asked& asked, size_t chunk, Partial out, int thread);
  struct CodedPages {
    const uint8_t* pages[kChunkPages];
    size_t first = 0, count = 0;
  };
  // Codes that the tile reads of a chunk.
  static CodedPages coded_pages(const Tile& tile, const AttendLayer& layer, const Asked& asked,
                                size_t chunk);
  void attend_integers(Compute& compute, const Tile& tile, const AttendLayer& layer,
                       const Asked& asked, const CodedPages& coded, Partial out, int thread);
  void attend_floats(Compute& compute, const Tile& tile, const AttendLayer& layer,
                     const Asked& asked, const CodedPages& coded, Partial out, int thread);
  void attend_exact(Compute& compute, const Tile& tile, const AttendLayer& layer,
                    const Asked& asked, Partial out, int thread);
  static void restore_values(const Partial& total, size_t rows, const KvShape& shape);
  static void merge(const Partial& from, size_t rows, size_t width, Partial into);
  static void finish(const Partial& total, const Tile& tile, const AttendLayer& layer,
                     const KvShape& shape);
  Partial partial_at(Buffer& buffer, size_t index, size_t rows, size_t width) const;
  float* coded_of(int thread) {
    return coded_.as<float>() + static_cast<size_t>(thread) * coded_floats_;
  }

  size_t rows_max_ = 0;        // of a tile
  size_t asked_max_ = 0;       // rows of all tiles at a time
  size_t width_ = 0;           // of a key or value, the larger
  size_t prepared_width_ = 0;  // of a prepared query
  size_t partial_floats_ = 0;  // of one Partial
  std::vector<Tile> tiles_;
  std::vector<Asked> asked_;  // [kv_heads], of run_split()
  Buffer queries_;            // [asked_max_, width_]
  Buffer visible_;            // [2][asked_max_]
  Buffer prepared_;           // [asked_max_, prepared_width_], scales [asked_max_]
  Buffer bytes_;              // sums [asked_max_][2], bytes [asked_max_][2][width_]
  Buffer partials_;  // [threads][partials_each_]: running total, chunk; of coded caches also page,
                     // first page
  Buffer coded_;     // [threads][coded_floats_]: a page as floats and turned queries
  Buffer split_;     // [chunks of a context] partials, for a single row's long history
  size_t partials_each_ = 2;
  size_t coded_floats_ = 0;
};

}  // namespace kvikk
