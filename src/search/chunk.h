#pragma once
// Vectors of an index lie in chunks. The rows of a chunk that a reader can see never change: rows
// are added behind them, whole blocks at a time, and what does not fill a block waits in a tail, a
// chunk of one block that is made anew by every add. A removed row gets the version in which it
// died. So readers need no lock.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "search/vector_coder.h"
#include "search/vector_lists.h"

namespace kvikk {

inline constexpr size_t kChunkRowsMax = 4096;
inline constexpr uint64_t kAlive = UINT64_MAX;  // version of death
inline constexpr uint32_t kNoChunk = UINT32_MAX;

// What a chunk holds for each row, and how many bytes that is.
struct ChunkShape {
  size_t dimensions = 0;
  size_t top_bytes = 0, rest_bytes = 0;  // of a block
  bool norms = false;                    // kL2
  size_t attributes = 0;
  KeptVectors kept = KeptVectors::kNone;

  size_t kept_bytes() const;  // of a row, its checksum included
  // Everything but kept vectors, for whole blocks: codes, scales, norms, ids, attributes.
  size_t core_bytes(size_t blocks) const;
};

class Chunk {
 public:
  // Errors: kExhausted.
  static Result<std::shared_ptr<Chunk>> allocate(const ChunkShape& shape, size_t rows_max);
  // Over bytes of a mapped file: `core` has core_bytes, `kept` rows * kept_bytes. The hash is
  // compared when a search first touches the chunk. `where` begins the message of an error.
  static std::shared_ptr<Chunk> over(const ChunkShape& shape, size_t rows,
                                     std::shared_ptr<const MappedFile> file, const uint8_t* core,
                                     const uint8_t* kept, uint64_t hash, std::string where);
  ~Chunk();

  size_t rows_max() const { return rows_max_; }
  bool mapped() const { return file_ != nullptr; }
  const uint8_t* top(size_t block) const { return top_ + block * shape_.top_bytes; }
  const uint8_t* rest(size_t block) const { return rest_ + block * shape_.rest_bytes; }
  const uint16_t* scales() const { return scales_; }
  const float* norms() const { return norms_; }
  int64_t id(size_t row) const { return ids_[row]; }
  const int64_t* ids() const { return ids_; }
  const int64_t* attribute(size_t number) const { return attributes_ + number * rows_max_; }
  const uint8_t* kept(size_t row) const { return kept_ + row * shape_.kept_bytes(); }

  // The version in which the row died, or kAlive.
  uint64_t died(size_t row) const {
    const std::atomic<uint64_t>* died = died_.load(std::memory_order_acquire);
    return died == nullptr ? kAlive : died[row].load(std::memory_order_acquire);
  }
  bool has_dead() const { return died_.load(std::memory_order_acquire) != nullptr; }
  // By one thread at a time.
  void bury(size_t row, uint64_t version);

  // Errors: kDamaged when the file's bytes are not those that were written.
  Status check() const;

  // Writes a row that no reader sees yet. kept: [kept_bytes()] or null.
  void put(const CodeLayout& layout, size_t row, const CodedVector& vector, int64_t id,
           const int64_t* attributes, const uint8_t* kept);
  // Takes codes out of rows that no reader sees and that begin a block: an add may have failed
  // half-way. put() needs it.
  void clear_blocks(size_t block, size_t blocks);
  // Copies `rows` rows, from block `block` of `from` on, to block `to`; deaths as well.
  void copy_blocks(const Chunk& from, size_t block, size_t rows, size_t to);
  // The bytes of `blocks` blocks as a file keeps them: core_bytes(blocks).
  void write_core(size_t blocks, uint8_t* out) const;
  // A row's codes, scale and norm.
  CodedVector get(const CodeLayout& layout, size_t row) const;

 private:
  Chunk(const ChunkShape& shape, size_t rows_max) : shape_(shape), rows_max_(rows_max) {}
  void place(uint8_t* core);

  ChunkShape shape_;
  size_t rows_max_;
  Buffer memory_, kept_memory_;
  std::vector<uint8_t> small_;  // instead of them where they would be small
  std::shared_ptr<const MappedFile> file_;
  uint64_t hash_ = 0;
  std::string where_;
  mutable std::atomic<bool> checked_{true};

  uint8_t* top_ = nullptr;                             // [blocks, top_bytes]
  uint8_t* rest_ = nullptr;                            // [blocks, rest_bytes]
  uint16_t* scales_ = nullptr;                         // [rows_max]
  float* norms_ = nullptr;                             // [rows_max] or null
  int64_t* ids_ = nullptr;                             // [rows_max]
  int64_t* attributes_ = nullptr;                      // [attributes, rows_max]
  uint8_t* kept_ = nullptr;                            // [rows_max, kept_bytes]
  std::atomic<std::atomic<uint64_t>*> died_{nullptr};  // [rows_max], once a row has died
};

// A kept vector, with a checksum of its own: a search reads few of them, at random.
void put_kept(KeptVectors kept, const float* vector, size_t dimensions, uint8_t* out);
// Errors: kDamaged.
Status get_kept(KeptVectors kept, const uint8_t* bytes, size_t dimensions, float* out);

// A chunk and what a snapshot sees of it. Rows count through chunk and tail.
struct ChunkView {
  std::shared_ptr<Chunk> chunk;
  size_t rows = 0;              // of the chunk: whole blocks unless no tail can follow
  std::shared_ptr<Chunk> tail;  // one block, or null
  size_t tail_rows = 0;
  uint32_t list = 0;
  uint32_t older = kNoChunk;  // another chunk of the list
  size_t all_rows() const { return rows + tail_rows; }
  const Chunk& holder(size_t row) const { return row < rows ? *chunk : *tail; }
  Chunk& holder(size_t row) { return row < rows ? *chunk : *tail; }
  size_t row_in_holder(size_t row) const { return row < rows ? row : row - rows; }
};

// What a search works on; never changes.
struct IndexTable {
  std::shared_ptr<const VectorCoder> coder;
  std::shared_ptr<const VectorLists> lists;  // null: one list, which has no centroid
  std::vector<ChunkView> chunks;
  std::vector<uint32_t> newest;  // [lists]: the last chunk of each, or kNoChunk

  IndexTable() = default;
  IndexTable(std::shared_ptr<const VectorCoder> with, std::shared_ptr<const VectorLists> over)
      : coder(std::move(with)), lists(std::move(over)) {
    newest.assign(lists == nullptr ? 1 : lists->count(), kNoChunk);
  }
  void push(ChunkView view) {
    view.older = newest[view.list];
    newest[view.list] = static_cast<uint32_t>(chunks.size());
    chunks.push_back(std::move(view));
  }
  // What was taken off a vector of the list before it was coded: [dimensions] or null.
  const float* centre(uint32_t list) const {
    return lists == nullptr ? nullptr : lists->centroid(list);
  }
};

}  // namespace kvikk
