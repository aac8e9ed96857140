#pragma once
// An index of vectors: add them, ask for the nearest. Each is kept as a few bits a dimension.
//
//   kvikk::IndexOptions options;
//   options.dimensions = 384;
//   auto index = kvikk::VectorIndex::create(options);
//   if (!index.ok()) return fail(index.status().message());
//   auto added = (*index)->add(vectors, ids);  // searchable from the first vector on
//   auto found = (*index)->search(queries, {.k = 10});
//   for (const kvikk::Neighbor& n : (*found)[0]) use(n.id, n.score);
//   auto saved = (*index)->save("index.kvx");
//
// Any thread may call any function at any time. A search sees the index as it was after some whole
// add, remove or update, and waits for none of them; those wait for each other. What a search
// answers depends on the index and the query alone: not on threads, on the processor, on the order
// of adding or on the other queries. docs/search.md explains the codes and the file.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvikk/status.h"

namespace kvikk {

enum class Metric : uint8_t {
  kInnerProduct,  // the score is the inner product; the largest come first
  kCosine,        // the cosine of the angle; the largest come first; about 0 for zeros
  kL2,            // the squared Euclidean distance; the smallest come first
};

// Vectors kept beside the codes, for exact scores of the best candidates.
enum class KeptVectors : uint8_t { kNone, kInt8, kHalf };

inline constexpr size_t kIndexDimensionsMax = 4096;
inline constexpr size_t kIndexAttributesMax = 4;
inline constexpr size_t kIndexVectorsMax = size_t{1} << 40;
inline constexpr size_t kNeighborsMax = size_t{1} << 20;     // k of a search
inline constexpr size_t kRangeResultsMax = size_t{1} << 24;  // of one query
inline constexpr size_t kFitDimensionsMax = 2048;            // its time grows with the cube
inline constexpr size_t kFitVectorsMin = 256;                // of a sample
inline constexpr size_t kIndexListsMax = size_t{1} << 16;
inline constexpr size_t kListVectorsMin = 4;  // of a sample, for each list

struct IndexOptions {
  size_t dimensions = 0;
  int bits = 4;  // of a dimension: 1, 2, 3, 4 or 8; fitted codes share them out over the axes
  Metric metric = Metric::kInnerProduct;
  KeptVectors kept = KeptVectors::kNone;
  size_t attributes = 0;  // integers of each vector, for filters
};

// How this process computes; changes no answer.
struct IndexRuntime {
  int threads = 0;        // 0: one for each core
  std::string cpu_level;  // "scalar", "avx2", "avx512", "amx"; empty: the best here
};

// Which vectors may be found: those that meet every part that is given.
struct IndexFilter {
  struct Range {
    size_t attribute;
    int64_t min, max;  // both included
  };
  std::optional<std::vector<int64_t>> ids;
  std::optional<std::vector<uint64_t>> bitmap;  // id i: bit i % 64 of word i / 64; others are out
  std::vector<Range> ranges;
};

struct SearchOptions {
  size_t k = 10;
  // > 0: this many candidates (at least k) by codes get exact scores from the kept vectors.
  size_t rerank = 0;
  // A first pass over the top two bits of each code, then whole codes for `candidates` (0: 64, at
  // least 6 k). Reads about half of a 4-bit code.
  bool staged = false;
  size_t candidates = 0;
  const IndexFilter* filter = nullptr;
  // Of an index with lists: how many of them each query looks into; 0: the index's own number. As
  // long as it has found fewer than k it looks into more.
  size_t probes = 0;
};

struct Neighbor {
  int64_t id;
  float score;
};
// For each query, best first, equal scores by id.
using Neighbors = std::vector<std::vector<Neighbor>>;

struct IndexInfo {
  IndexOptions options;
  bool fitted = false;
  size_t lists = 0;             // 0: a search scans everything
  size_t probes = 0;            // of a search that does not say
  uint64_t vectors = 0;         // that can be found
  uint64_t removed = 0;         // whose room is not yet given back
  double code_bytes = 0;        // of a vector: codes, scale and, for kL2, its length
  double bytes_per_vector = 0;  // code_bytes, id and attributes; kept vectors are apart
  double kept_bytes = 0;        // of a vector
  std::string cpu_level;
  std::vector<std::pair<size_t, int>> groups;  // dims and bits of each
};

class VectorIndex {
 public:
  // Errors: kInvalidArgument, kExhausted.
  static Result<std::unique_ptr<VectorIndex>> create(const IndexOptions& options,
                                                     const IndexRuntime& runtime = {});
  // Maps the file; vectors are read and their checksums compared when a search first touches them.
  // Errors: kNotFound, kIo, kDamaged, kUnsupported (another version).
  static Result<std::unique_ptr<VectorIndex>> open(const std::string& path,
                                                   const IndexRuntime& runtime = {});
  virtual ~VectorIndex() = default;

  // Fits the codes to a uniform sample [n, dimensions] of what will be added: mean, principal axes,
  // more bits where the variance is. Only while the index is empty.
  virtual Status fit(std::span<const float> sample) = 0;
  // Shares the vectors out over lists, by k-means over a uniform sample [n, dimensions], n at least
  // kListVectorsMin for each list. A search then looks into some of them only. While the index is
  // empty, and before fit(); or of one that keeps its vectors, which are then coded again.
  virtual Status make_lists(std::span<const float> sample, size_t lists) = 0;
  // How many lists queries like these [n, dimensions] must look into to find this part (0 to 1) of
  // what a search of all lists finds. Up to 256 of them are tried.
  virtual Result<size_t> probes_for(std::span<const float> queries, double recall,
                                    const SearchOptions& options = {}) const = 0;
  // Fits anew, to a uniform sample of the vectors that are kept, and codes all of them again.
  // Errors: kUnsupported when the index keeps none.
  virtual Status refit() = 0;

  // vectors [n, dimensions], ids [n], attributes [n, options.attributes]. All or none is added. An
  // id that is there already is replaced; one that is twice in `ids`: the last one counts. Errors:
  // kInvalidArgument for a wrong count or a NaN or an infinity, with its row.
  virtual Status add(std::span<const float> vectors, std::span<const int64_t> ids,
                     std::span<const int64_t> attributes = {}) = 0;
  // How many were there. The time for one id does not depend on the index.
  virtual Result<size_t> remove(std::span<const int64_t> ids) = 0;
  // Gives back the room of removed vectors.
  virtual Status compact() = 0;

  // queries [n, dimensions]. With fewer than k vectors that pass the filter, all of them. Errors:
  // kInvalidArgument (k = 0, a NaN, a wrong count), kDamaged (the file, at this place).
  virtual Result<Neighbors> search(std::span<const float> queries,
                                   const SearchOptions& options = {}) const = 0;
  // All with a score at least `score` (kL2: at most). Errors: also kExhausted beyond
  // kRangeResultsMax.
  virtual Result<Neighbors> range_search(std::span<const float> queries, float score,
                                         const IndexFilter* filter = nullptr) const = 0;

  // After this returned the file holds the index; a crash at any moment before leaves the file as
  // it was after an earlier save. Writes only what changed since the file was opened or saved.
  virtual Status save(const std::string& path) = 0;
  // Compares every checksum of an opened file.
  virtual Status verify() const = 0;
  virtual IndexInfo info() const = 0;
};

}  // namespace kvikk
