#include "search/index_manifest.h"

#include <cmath>
#include <type_traits>

#include "base/byte_reader.h"

namespace kvikk {

namespace {

constexpr size_t kBooks = 9;

class Writer {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    append(&value, sizeof value);
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    append(values.data(), values.size() * sizeof(T));
  }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  void append(const void* from, size_t count) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + count);
  }
  std::vector<uint8_t> bytes_;
};

// ByteReader with messages and limits.
class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Status fail(const std::string& what) const { return damaged(name_ + ": " + what); }

  template <class T>
  Status get(T& out) {
    return bytes_.get(out) ? ok_status() : too_short();
  }
  // A whole number within limits, both included.
  template <class T>
  Status get_number(const char* what, uint64_t min, uint64_t max, T& out) {
    uint64_t value = 0;
    TRY(get(value));
    if (value < min || value > max) {
      return fail(std::string(what) + " is " + std::to_string(value) + ", not " +
                  std::to_string(min) + " to " + std::to_string(max));
    }
    out = static_cast<T>(value);
    return ok_status();
  }
  template <class T>
  Status get_all(size_t count, std::vector<T>& out) {
    return bytes_.get_all(count, out) ? ok_status() : too_short();
  }
  bool at_end() const { return bytes_.done(); }

 private:
  Status too_short() const { return fail("the manifest ends too early"); }

  ByteReader bytes_;
  const std::string& name_;
};

Status read_options(Reader& in, IndexOptions& out) {
  TRY(in.get_number("dimensions", 1, kIndexDimensionsMax, out.dimensions));
  TRY(in.get_number("bits", 1, 8, out.bits));
  if (out.bits > 4 && out.bits < 8) return in.fail("bits are " + std::to_string(out.bits));
  TRY(in.get_number("the metric", 0, 2, out.metric));
  TRY(in.get_number("the kind of kept vectors", 0, 2, out.kept));
  return in.get_number("attributes", 0, kIndexAttributesMax, out.attributes);
}

Status read_groups(Reader& in, const IndexOptions& options, std::vector<CodeGroup>& out) {
  size_t count = 0;
  TRY(in.get_number("groups", 1, kCodeGroupsMax, count));
  size_t dims = 0;
  for (size_t g = 0; g < count; ++g) {
    CodeGroup group;
    TRY(in.get_number("a group's dims", 1, options.dimensions, group.dims));
    TRY(in.get_number("a group's bits", 1, 8, group.bits));
    TRY(in.get(group.sigma));
    if (group.bits == 7) return in.fail("a group has 7 bits");
    if (!(group.sigma > 0) || !(group.sigma <= kVectorLengthMax)) {
      return in.fail("a group's sigma is out of range");
    }
    dims += group.dims;
    out.push_back(group);
  }
  if (dims > options.dimensions) return in.fail("the groups have more dims than the vectors");
  return ok_status();
}

Status read_books(Reader& in, std::vector<Codebook>& out) {
  out.resize(kBooks);
  for (size_t bits = 1; bits < kBooks; ++bits) {
    size_t count = 0;
    TRY(in.get_number("levels", 0, size_t{1} << bits, count));
    Codebook& book = out[bits];
    TRY(in.get_all(count, book.levels));
    if (count == 0) continue;
    book.bits = bits;
    for (size_t i = 0; i + 1 < count; ++i) {
      book.thresholds.push_back((book.levels[i] + book.levels[i + 1]) / 2);
    }
  }
  return ok_status();
}

Status read_transform(Reader& in, Manifest& out) {
  const size_t d = out.options.dimensions;
  out.transform.dimensions = d;
  bool fitted = false;
  TRY(in.get_number("fitted", 0, 1, fitted));
  TRY(in.get(out.transform.seed));
  size_t dims = 0;
  for (const CodeGroup& group : out.groups) dims += group.dims;
  if (!fitted) {
    return dims == d ? ok_status() : in.fail("the groups leave dims out");
  }
  TRY(in.get_all(d, out.transform.mean));
  for (const float m : out.transform.mean) {
    if (!std::isfinite(m)) return in.fail("the mean is not finite");
  }
  TRY(in.get_number("the stride of axes", dims, dims + kSearchDims, out.transform.axes_stride));
  if (out.transform.axes_stride % kSearchDims != 0) return in.fail("the stride of axes is odd");
  TRY(in.get(out.axes_offset));
  return in.get(out.axes_hash);
}

Status read_lists(Reader& in, Manifest& out) {
  TRY(in.get_number("lists", 1, kIndexListsMax, out.lists));
  TRY(in.get_number("probes", 1, out.lists, out.probes));
  TRY(in.get(out.centroids_offset));
  TRY(in.get(out.centroids_hash));
  for (ManifestChunk& chunk : out.chunks) {
    TRY(in.get_number("a chunk's list", 0, out.lists - 1, chunk.list));
  }
  return ok_status();
}

}  // namespace

std::vector<uint8_t> write_manifest(const Manifest& m) {
  Writer out;
  const auto put = [&](uint64_t value) { out.put(value); };
  put(m.options.dimensions);
  put(static_cast<uint64_t>(m.options.bits));
  put(static_cast<uint64_t>(m.options.metric));
  put(static_cast<uint64_t>(m.options.kept));
  put(m.options.attributes);
  put(m.vectors);
  put(m.removed);
  put(m.groups.size());
  for (const CodeGroup& group : m.groups) {
    put(group.dims);
    put(group.bits);
    out.put(group.sigma);
  }
  for (size_t bits = 1; bits < kBooks; ++bits) {
    put(m.books[bits].levels.size());
    out.put_all(m.books[bits].levels);
  }
  put(m.transform.fitted() ? 1 : 0);
  put(m.transform.seed);
  if (m.transform.fitted()) {
    out.put_all(m.transform.mean);
    put(m.transform.axes_stride);
    put(m.axes_offset);
    put(m.axes_hash);
  }
  put(m.chunks.size());
  for (const ManifestChunk& chunk : m.chunks) {
    put(chunk.record.rows);
    put(chunk.record.core_offset);
    put(chunk.record.kept_offset);
    put(chunk.record.hash);
    put(chunk.dead.size());
    out.put_all(chunk.dead);
  }
  if (m.lists == 0) return out.take();
  put(m.lists);
  put(m.probes);
  put(m.centroids_offset);
  put(m.centroids_hash);
  for (const ManifestChunk& chunk : m.chunks) put(chunk.list);
  return out.take();
}

Result<Manifest> read_manifest(std::span<const uint8_t> bytes, const std::string& name,
                               bool lists) {
  Reader in(bytes, name);
  Manifest out;
  TRY(read_options(in, out.options));
  TRY(in.get_number("vectors", 0, kIndexVectorsMax, out.vectors));
  TRY(in.get_number("removed vectors", 0, kIndexVectorsMax, out.removed));
  TRY(read_groups(in, out.options, out.groups));
  TRY(read_books(in, out.books));
  TRY(read_transform(in, out));
  size_t chunks = 0;
  TRY(in.get_number("chunks", 0, kIndexChunksMax, chunks));
  uint64_t rows = 0;
  uint64_t removed = 0;
  for (size_t c = 0; c < chunks; ++c) {
    ManifestChunk chunk;
    TRY(in.get_number("a chunk's rows", 1, kChunkRowsMax, chunk.record.rows));
    TRY(in.get(chunk.record.core_offset));
    TRY(in.get(chunk.record.kept_offset));
    TRY(in.get(chunk.record.hash));
    size_t dead = 0;
    TRY(in.get_number("bytes of dead rows", 0, (chunk.record.rows + 7) / 8, dead));
    if (dead != 0 && dead != (chunk.record.rows + 7) / 8) {
      return in.fail("a chunk's dead rows are cut short");
    }
    TRY(in.get_all(dead, chunk.dead));
    rows += chunk.record.rows;
    for (size_t row = 0; row < chunk.record.rows && dead > 0; ++row) {
      removed += chunk.dead[row / 8] >> row % 8 & 1u;
    }
    out.chunks.push_back(std::move(chunk));
  }
  if (lists) TRY(read_lists(in, out));
  if (!in.at_end()) return in.fail("bytes are left behind the manifest");
  if (removed != out.removed) return in.fail("other rows are dead than it says");
  if (rows != out.vectors + out.removed) return in.fail("the chunks have other rows than it says");
  return out;
}

}  // namespace kvikk
