#pragma once
// Blocks of the prefix cache that memory had no room for, in a folder: a file for each 64 tokens
// and all that stands before them. A thread of its own writes them. What cannot be read back
// unchanged is not there: it is computed again.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kv/page_pool.h"
#include "kvikk/token.h"

namespace kvikk {

// A hash of a block's tokens, of all before them, and of whose they are.
struct BlockKey {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockKey&) const = default;
};

struct PrefixStoreStats {
  uint64_t blocks = 0;  // in the folder
  uint64_t bytes = 0;
  uint64_t written = 0;  // blocks, since it was opened
  uint64_t read = 0;
  uint64_t skipped = 0;  // not written: the disk did not keep up
  std::string error;     // what ended the writing; reading goes on
};

class PrefixStore {
 public:
  // Blocks that wait to be written take no more memory than this.
  static constexpr size_t kQueueBytesMax = size_t{256} << 20;

  // `identity`: all that decides a block's bytes beside its tokens (weights, kernels); others'
  // files in `folder` are left alone, in a folder of their own. The files of this identity together
  // have at most `bytes_max` bytes. Errors: kIo, kExhausted: the folder cannot be made or read.
  static Result<std::unique_ptr<PrefixStore>> open(const std::string& folder, uint64_t bytes_max,
                                                   const std::string& identity,
                                                   const KvShape& shape);
  ~PrefixStore();  // writes what waits
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // The key of the block `tokens` [64] that follows the block `before` (none: it begins a text).
  // Only with the same `salt` are keys the same.
  static BlockKey key_of(const BlockKey* before, std::span<const TokenId> tokens, uint64_t salt);

  // The groups whose slabs it can give, a bit for each; 0: the block is not there.
  uint32_t groups(const BlockKey& key) const;
  // Has a block written; slabs [groups] with kNoSlab are left out. Does nothing where it is there
  // already. Where the queue is full: with `wait` it waits, else the block is skipped.
  void put(const BlockKey& key, std::span<const TokenId> tokens, PagePool& pool,
           std::span<const SlabId> slabs, bool wait);
  // Fills slabs [groups], one for each bit of groups(key). False where the file is gone, damaged or
  // of other tokens; the slabs' bytes are then undefined.
  bool read(const BlockKey& key, std::span<const TokenId> tokens, PagePool& pool,
            std::span<const SlabId> slabs);

  PrefixStoreStats stats() const;

 private:
  struct KeyHash {
    size_t operator()(const BlockKey& key) const { return key.low; }
  };
  struct Entry {
    uint32_t groups = 0;
    uint64_t bytes = 0;
    std::list<BlockKey>::iterator age;  // in ages_
  };
  struct Job {
    BlockKey key;
    uint32_t groups = 0;
    std::vector<uint8_t> bytes;
  };

  PrefixStore(std::string folder, uint64_t bytes_max, const KvShape& shape);
  Status scan();
  std::string path_of(const BlockKey& key, uint32_t groups) const;
  uint64_t file_bytes(uint32_t groups) const;
  bool holds(const BlockKey& key, uint32_t groups) const;
  void add(const BlockKey& key, uint32_t groups);
  void forget(const BlockKey& key);
  void make_room(uint64_t bytes);
  void write_jobs();

  const std::string folder_;
  const uint64_t bytes_max_;
  std::vector<uint64_t> slab_bytes_;  // [groups]

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::unordered_map<BlockKey, Entry, KeyHash> entries_;
  std::list<BlockKey> ages_;  // least recently used first
  std::deque<Job> jobs_;      // the first one is being written
  size_t job_bytes_ = 0;
  PrefixStoreStats stats_;
  bool ending_ = false;
  std::thread writer_;
};

}  // namespace kvikk
