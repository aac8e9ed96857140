#include "search/index_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "search/index_manifest.h"
#include "weights/fetch_files.h"

namespace kvikk {

namespace {

constexpr std::array<char, 16> kMagic = {'k', 'v', 'i', 'k', 'k', ' ',  'v',  'e',
                                         'c', 't', 'o', 'r', 's', '\r', '\n', '\0'};
constexpr size_t kSuperblockBytes = 4096;
constexpr uint64_t kDataBegin = 2 * kSuperblockBytes;
constexpr uint64_t kAlign = 64;
constexpr uint64_t kSlackBytes = 1 << 20;  // that a file may hold in vain without being rewritten

struct Superblock {
  std::array<char, 16> magic = kMagic;
  uint64_t version = kIndexFileVersion;
  uint64_t file_id = 0;
  uint64_t generation = 0;
  uint64_t manifest_offset = 0, manifest_bytes = 0, manifest_hash = 0;
  uint64_t hash = 0;  // of all before

  uint64_t own_hash() const { return XXH3_64bits(this, offsetof(Superblock, hash)); }
};

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Status outside(const std::string& name, const char* what, uint64_t end, uint64_t size) {
  return damaged(name + ": " + what + " ends at byte " + std::to_string(end) +
                 " but the file has " + std::to_string(size));
}

// [offset, offset + count) of the file.
Result<std::span<const uint8_t>> part(std::span<const uint8_t> bytes, uint64_t offset,
                                      uint64_t count, const std::string& name, const char* what) {
  if (offset % kAlign != 0 || offset < kDataBegin) {
    return damaged(name + ": " + what + " begins at byte " + std::to_string(offset) +
                   ", where nothing can begin");
  }
  if (offset > bytes.size() || count > bytes.size() - offset) {
    return outside(name, what, offset + count, bytes.size());
  }
  return bytes.subspan(offset, count);
}

Result<Superblock> read_superblock(std::span<const uint8_t> bytes, const std::string& name,
                                   bool verify) {
  if (bytes.size() < kDataBegin || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return damaged(name + ": is not an index of vectors, or its begin is damaged");
  }
  std::optional<Superblock> best;
  uint64_t other_version = 0;
  for (size_t i = 0; i < 2; ++i) {
    Superblock block;
    std::memcpy(&block, bytes.data() + i * kSuperblockBytes, sizeof block);
    if (block.magic != kMagic || (verify && block.hash != block.own_hash())) continue;
    if (block.version < 1 || block.version > kIndexFileVersion) {
      other_version = block.version;
    } else if (!best.has_value() || block.generation > best->generation) {
      best = block;
    }
  }
  if (best.has_value()) return *best;
  if (other_version != 0) {
    return unsupported(name + ": is an index of version " + std::to_string(other_version) +
                       "; this program reads versions 1 to " + std::to_string(kIndexFileVersion));
  }
  return damaged(name + ": neither of its superblocks is what was written");
}

Result<std::shared_ptr<const VectorCoder>> read_coder(Manifest& manifest,
                                                      std::span<const uint8_t> bytes,
                                                      const std::string& name, bool verify) {
  VectorTransform& transform = manifest.transform;
  if (transform.fitted()) {
    const size_t floats = transform.dimensions * transform.axes_stride;
    TRY_ASSIGN(const auto axes,
               part(bytes, manifest.axes_offset, floats * sizeof(float), name, "the axes"));
    if (verify && XXH3_64bits(axes.data(), axes.size()) != manifest.axes_hash) {
      return damaged(name + ": the axes are not what was written: their checksum differs");
    }
    transform.axes.resize(floats);
    std::memcpy(transform.axes.data(), axes.data(), axes.size());
    for (const float a : transform.axes) {
      if (!(std::abs(a) <= 2)) return damaged(name + ": an axis is longer than 1");
    }
  }
  auto layout = CodeLayout::restore(manifest.groups, manifest.books);
  if (!layout.ok()) return damaged(name + ": " + layout.status().message());
  return std::shared_ptr<const VectorCoder>(std::make_shared<VectorCoder>(
      std::move(transform), std::move(*layout), manifest.options.metric));
}

Result<std::shared_ptr<const VectorLists>> read_lists(const Manifest& manifest,
                                                      std::span<const uint8_t> bytes,
                                                      const std::string& name, bool verify) {
  if (manifest.lists == 0) return std::shared_ptr<const VectorLists>();
  const size_t d = manifest.options.dimensions;
  std::vector<float> centroids(manifest.lists * d);
  TRY_ASSIGN(const auto found, part(bytes, manifest.centroids_offset,
                                    centroids.size() * sizeof(float), name, "the centroids"));
  if (verify && XXH3_64bits(found.data(), found.size()) != manifest.centroids_hash) {
    return damaged(name + ": the centroids are not what was written: their checksum differs");
  }
  std::memcpy(centroids.data(), found.data(), found.size());
  for (const float c : centroids) {
    if (!(std::abs(c) <= kVectorLengthMax)) return damaged(name + ": a centroid is too long");
  }
  return std::shared_ptr<const VectorLists>(
      std::make_shared<VectorLists>(std::move(centroids), d, manifest.probes));
}

// Appends to a file that is open for writing.
class Appender {
 public:
  Appender(int fd, const std::string& path, uint64_t end) : fd_(fd), path_(path), end_(end) {}
  uint64_t end() const { return end_; }

  // Returns where they begin.
  Result<uint64_t> append(std::span<const uint8_t> bytes) {
    const uint64_t begin = aligned(end_);
    TRY(write_at(begin, bytes));
    end_ = begin + bytes.size();
    return begin;
  }
  Status write_at(uint64_t offset, std::span<const uint8_t> bytes) {
    if (::lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0) {
      return file_error(path_, "seek in", errno);
    }
    return write_all(fd_, bytes, path_);
  }
  Status sync() { return ::fsync(fd_) == 0 ? ok_status() : file_error(path_, "write", errno); }

 private:
  int fd_;
  const std::string& path_;
  uint64_t end_;
};

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

// A view's rows without a tail, for writing: the chunk itself, or a copy.
Result<std::shared_ptr<const Chunk>> whole_chunk(const ChunkShape& shape, const ChunkView& view) {
  if (view.tail_rows == 0) return std::shared_ptr<const Chunk>(view.chunk);
  TRY_ASSIGN(std::shared_ptr<Chunk> joined, Chunk::allocate(shape, view.all_rows()));
  if (view.rows > 0) joined->copy_blocks(*view.chunk, 0, view.rows, 0);
  joined->copy_blocks(*view.tail, 0, view.tail_rows, view.rows / kSearchBlock);
  return std::shared_ptr<const Chunk>(std::move(joined));
}

Result<ChunkRecord> append_chunk(const ChunkShape& shape, const ChunkView& view, Appender& out) {
  TRY_ASSIGN(const auto chunk, whole_chunk(shape, view));
  TRY(chunk->check());
  const size_t blocks = (view.all_rows() + kSearchBlock - 1) / kSearchBlock;
  std::vector<uint8_t> core(shape.core_bytes(blocks));
  chunk->write_core(blocks, core.data());
  ChunkRecord record;
  record.rows = view.all_rows();
  record.hash = XXH3_64bits(core.data(), core.size());
  TRY_ASSIGN(record.core_offset, out.append(core));
  record.kept_offset = record.core_offset;
  if (shape.kept != KeptVectors::kNone) {
    TRY_ASSIGN(record.kept_offset,
               out.append({chunk->kept(0), view.all_rows() * shape.kept_bytes()}));
  }
  return record;
}

std::vector<uint8_t> dead_rows(const ChunkView& view) {
  std::vector<uint8_t> out;
  for (size_t row = 0; row < view.all_rows(); ++row) {
    if (view.holder(row).died(view.row_in_holder(row)) == kAlive) continue;
    out.resize((view.all_rows() + 7) / 8);
    out[row / 8] = static_cast<uint8_t>(out[row / 8] | 1u << row % 8);
  }
  return out;
}

// Appends what the file lacks, the manifest and, once all that is on disk, the superblock.
Status write_content(const IndexContent& content, Appender& out, IndexFileState& state) {
  const VectorCoder& coder = *content.table.coder;
  const ChunkShape shape = shape_of(content.options, coder.layout());
  Manifest manifest;
  manifest.options = content.options;
  manifest.vectors = content.vectors;
  manifest.removed = content.removed;
  manifest.transform = coder.transform();
  manifest.groups = coder.layout().groups();
  manifest.books = coder.layout().books();
  if (coder.transform().fitted() && state.coder != content.table.coder) {
    const auto axes = bytes_of(coder.transform().axes);
    TRY_ASSIGN(state.axes_offset, out.append(axes));
    state.axes_hash = XXH3_64bits(axes.data(), axes.size());
  }
  const std::shared_ptr<const VectorLists>& lists = content.table.lists;
  if (lists != nullptr && state.lists != lists) {
    const auto centroids = bytes_of(lists->centroids());
    TRY_ASSIGN(state.centroids_offset, out.append(centroids));
    state.centroids_hash = XXH3_64bits(centroids.data(), centroids.size());
  }
  state.lists = lists;
  manifest.lists = lists == nullptr ? 0 : lists->count();
  manifest.probes = lists == nullptr ? 0 : lists->probes();
  manifest.centroids_offset = state.centroids_offset;
  manifest.centroids_hash = state.centroids_hash;
  state.coder = content.table.coder;
  manifest.axes_offset = state.axes_offset;
  manifest.axes_hash = state.axes_hash;
  std::map<std::shared_ptr<const Chunk>, ChunkRecord> records;
  for (const ChunkView& view : content.table.chunks) {
    const auto found = state.chunks.find(view.chunk);
    ChunkRecord record;
    if (found != state.chunks.end() && found->second.rows == view.all_rows()) {
      record = found->second;
    } else {
      TRY_ASSIGN(record, append_chunk(shape, view, out));
    }
    records[view.chunk] = record;
    manifest.chunks.push_back({record, dead_rows(view), view.list});
  }
  state.chunks = std::move(records);
  const std::vector<uint8_t> bytes = write_manifest(manifest);
  Superblock block;
  block.version = manifest.lists == 0 ? 1 : kIndexFileVersion;
  block.file_id = state.file_id;
  block.generation = ++state.generation;
  TRY_ASSIGN(block.manifest_offset, out.append(bytes));
  block.manifest_bytes = bytes.size();
  block.manifest_hash = XXH3_64bits(bytes.data(), bytes.size());
  block.hash = block.own_hash();
  state.end = out.end();
  TRY(out.sync());
  std::vector<uint8_t> padded(kSuperblockBytes);
  std::memcpy(padded.data(), &block, sizeof block);
  TRY(out.write_at(block.generation % 2 * kSuperblockBytes, padded));
  return out.sync();
}

uint64_t bytes_in_use(const IndexContent& content) {
  const ChunkShape shape = shape_of(content.options, content.table.coder->layout());
  uint64_t bytes = kDataBegin + content.table.coder->transform().axes.size() * sizeof(float);
  if (content.table.lists != nullptr) {
    bytes += content.table.lists->centroids().size() * sizeof(float);
  }
  for (const ChunkView& view : content.table.chunks) {
    const size_t blocks = (view.all_rows() + kSearchBlock - 1) / kSearchBlock;
    bytes += shape.core_bytes(blocks) + view.all_rows() * shape.kept_bytes();
  }
  return bytes;
}

// The file at the state's path, locked, if it is still what the state says; else nothing.
std::optional<FileDescriptor> open_known(const std::string& path, const IndexFileState& state) {
  if (state.path != path || state.generation == 0) return std::nullopt;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  struct stat here {};
  struct stat named {};
  if (::fstat(file.get(), &here) != 0 || ::stat(path.c_str(), &named) != 0 ||
      here.st_ino != named.st_ino || here.st_dev != named.st_dev) {
    return std::nullopt;
  }
  std::vector<uint8_t> begin(kDataBegin);
  if (::pread(file.get(), begin.data(), begin.size(), 0) != static_cast<ssize_t>(begin.size())) {
    return std::nullopt;
  }
  const auto block = read_superblock(begin, path, true);
  if (!block.ok() || block->file_id != state.file_id || block->generation != state.generation) {
    return std::nullopt;
  }
  return file;
}

uint64_t fresh_file_id(const std::string& path) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string text = path + " " + std::to_string(now) + " " + std::to_string(::getpid());
  return XXH3_64bits(text.data(), text.size()) | 1;
}

Status write_anew(const IndexContent& content, const std::string& path, IndexFileState& state) {
  IndexFileState fresh;
  fresh.path = path;
  fresh.file_id = fresh_file_id(path);
  const std::string temporary = path + "." + std::to_string(fresh.file_id) + ".part";
  TRY_ASSIGN(const FileDescriptor file, open_file(temporary, O_RDWR | O_CREAT | O_TRUNC));
  Appender out(file.get(), temporary, kDataBegin);
  // Both begin with the magic; the one that was never written has no right checksum.
  Status status = out.write_at(0, {reinterpret_cast<const uint8_t*>(kMagic.data()), kMagic.size()});
  if (status.ok()) status = write_content(content, out, fresh);
  if (status.ok()) status = publish_file(file, temporary, path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  state = std::move(fresh);
  return ok_status();
}

}  // namespace

ChunkShape shape_of(const IndexOptions& options, const CodeLayout& layout) {
  ChunkShape shape;
  shape.dimensions = options.dimensions;
  shape.top_bytes = layout.top_bytes();
  shape.rest_bytes = layout.rest_bytes();
  shape.norms = options.metric == Metric::kL2;
  shape.attributes = options.attributes;
  shape.kept = options.kept;
  return shape;
}

Result<IndexContent> parse_index(std::shared_ptr<const MappedFile> file,
                                 std::span<const uint8_t> bytes, const std::string& name,
                                 bool verify, IndexFileState& state) {
  TRY_ASSIGN(const Superblock block, read_superblock(bytes, name, verify));
  TRY_ASSIGN(const auto manifest_bytes,
             part(bytes, block.manifest_offset, block.manifest_bytes, name, "the manifest"));
  if (verify && XXH3_64bits(manifest_bytes.data(), manifest_bytes.size()) != block.manifest_hash) {
    return damaged(name + ": the manifest is not what was written: its checksum differs");
  }
  TRY_ASSIGN(Manifest manifest, read_manifest(manifest_bytes, name, block.version > 1));
  IndexContent content;
  content.options = manifest.options;
  content.vectors = manifest.vectors;
  content.removed = manifest.removed;
  TRY_ASSIGN(auto coder, read_coder(manifest, bytes, name, verify));
  TRY_ASSIGN(auto lists, read_lists(manifest, bytes, name, verify));
  content.table = IndexTable(std::move(coder), std::move(lists));
  const ChunkShape shape = shape_of(manifest.options, content.table.coder->layout());
  for (size_t c = 0; c < manifest.chunks.size(); ++c) {
    const ManifestChunk& entry = manifest.chunks[c];
    const ChunkRecord& record = entry.record;
    const size_t blocks = (record.rows + kSearchBlock - 1) / kSearchBlock;
    TRY_ASSIGN(const auto core,
               part(bytes, record.core_offset, shape.core_bytes(blocks), name, "a chunk"));
    TRY_ASSIGN(const auto kept, part(bytes, record.kept_offset, record.rows * shape.kept_bytes(),
                                     name, "a chunk's kept vectors"));
    ChunkView view;
    view.chunk = Chunk::over(shape, record.rows, file, core.data(), kept.data(), record.hash,
                             name + ": chunk " + std::to_string(c));
    view.rows = record.rows;
    for (size_t row = 0; row < record.rows && !entry.dead.empty(); ++row) {
      if ((entry.dead[row / 8] >> row % 8 & 1) != 0) view.chunk->bury(row, 0);
    }
    view.list = entry.list;
    state.chunks[view.chunk] = record;
    content.table.push(std::move(view));
  }
  state.path = name;
  state.file_id = block.file_id;
  state.generation = block.generation;
  state.end = block.manifest_offset + block.manifest_bytes;
  state.coder = content.table.coder;
  state.axes_offset = manifest.axes_offset;
  state.axes_hash = manifest.axes_hash;
  state.lists = content.table.lists;
  state.centroids_offset = manifest.centroids_offset;
  state.centroids_hash = manifest.centroids_hash;
  return content;
}

Result<IndexContent> open_index_file(const std::string& path, IndexFileState& state) {
  TRY_ASSIGN(MappedFile mapped, MappedFile::open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(mapped));
  return parse_index(file, file->bytes(), path, true, state);
}

Status save_index_file(const IndexContent& content, const std::string& path,
                       IndexFileState& state) {
  const bool wasteful = state.end > 2 * bytes_in_use(content) + kSlackBytes;
  if (!wasteful) {
    if (std::optional<FileDescriptor> file = open_known(path, state)) {
      IndexFileState next = state;
      Appender out(file->get(), path, state.end);
      TRY(write_content(content, out, next));
      state = std::move(next);
      return ok_status();
    }
  }
  return write_anew(content, path, state);
}

}  // namespace kvikk
