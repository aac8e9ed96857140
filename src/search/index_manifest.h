#pragma once
// The manifest of an index file: everything but the vectors and the axes, as bytes and back.

#include "search/index_file.h"

namespace kvikk {

struct ManifestChunk {
  ChunkRecord record;
  std::vector<uint8_t> dead;  // bit by row; empty: none
  uint32_t list = 0;
};

struct Manifest {
  IndexOptions options;
  uint64_t vectors = 0, removed = 0;
  VectorTransform transform;  // without its axes
  std::vector<CodeGroup> groups;
  std::vector<Codebook> books;  // by bits
  uint64_t axes_offset = 0, axes_hash = 0;
  size_t lists = 0, probes = 0;  // 0: no lists
  uint64_t centroids_offset = 0, centroids_hash = 0;
  std::vector<ManifestChunk> chunks;
};

std::vector<uint8_t> write_manifest(const Manifest& manifest);
// Every number is in its range; offsets are not checked. Errors: kDamaged, with `name` in front.
// `lists`: whether the file's version has them.
Result<Manifest> read_manifest(std::span<const uint8_t> bytes, const std::string& name, bool lists);

}  // namespace kvikk
