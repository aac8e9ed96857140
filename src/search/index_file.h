#pragma once
// The file of an index. It only grows: a save appends the chunks that changed and a manifest, waits
// until they are on disk, and then writes one of two superblocks, the older one. Whoever opens the
// file takes the newer superblock whose checksum is right, so that a crash at any moment leaves
// what the save before left. When half of a file is of no use any more it is written anew beside
// itself and renamed.
//
//   0      superblock, even generations     magic, version, generation, where the manifest is
//   4096   superblock, odd generations      and its checksum; checksum of all that
//   8192   chunks, axes, centroids, manifests          each at a multiple of 64
//
// Numbers are little-endian. Manifest, axes and centroids are compared with their checksums when
// the file is opened, a chunk when a search first touches it, a kept vector whenever it is read.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "search/chunk.h"

namespace kvikk {

inline constexpr uint32_t kIndexFileVersion = 2;  // 1 is written when there are no lists, and read
inline constexpr size_t kIndexChunksMax = size_t{1} << 22;  // of a file

// Where a chunk lies in the file.
struct ChunkRecord {
  size_t rows = 0;
  uint64_t core_offset = 0, kept_offset = 0, hash = 0;
};

// What a file holds, as the process that opened or saved it knows it.
struct IndexFileState {
  std::string path;
  uint64_t file_id = 0, generation = 0;
  uint64_t end = 0;  // of what is in use
  std::map<std::shared_ptr<const Chunk>, ChunkRecord> chunks;
  std::shared_ptr<const VectorCoder> coder;  // whose axes are at axes_offset
  uint64_t axes_offset = 0, axes_hash = 0;
  std::shared_ptr<const VectorLists> lists;  // whose centroids are at centroids_offset
  uint64_t centroids_offset = 0, centroids_hash = 0;
};

struct IndexContent {
  IndexOptions options;
  IndexTable table;
  uint64_t vectors = 0, removed = 0;
};

ChunkShape shape_of(const IndexOptions& options, const CodeLayout& layout);

// Rows that are dead get version 0. Errors: kNotFound, kIo, kDamaged, kUnsupported.
Result<IndexContent> open_index_file(const std::string& path, IndexFileState& state);
// The same for bytes that are there already. `verify` false: checksums of superblocks and manifest
// are not compared, for a fuzzer.
Result<IndexContent> parse_index(std::shared_ptr<const MappedFile> file,
                                 std::span<const uint8_t> bytes, const std::string& name,
                                 bool verify, IndexFileState& state);

// `content` must not change meanwhile. Errors: kIo, kExhausted.
Status save_index_file(const IndexContent& content, const std::string& path, IndexFileState& state);

}  // namespace kvikk
