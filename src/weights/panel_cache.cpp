#include "weights/panel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "kernels/panels.h"
#include "weights/block_quantizer.h"
#include "weights/fetch_files.h"
#include "weights/pack.h"

namespace kvikk {
namespace {

constexpr char kMagic[] = "KVIKKPANELS1\n\n\n\n";  // 16 bytes without the end
constexpr size_t kMagicBytes = 16;
constexpr size_t kKeyBytes = 64;  // hexadecimal digits
constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kDataAlign = 4096;
constexpr char kEnding[] = ".panels";

// Text with its length, so that no two lists of texts hash alike.
void add(Sha256& hash, std::string_view text) {
  hash.update(bytes_of(std::to_string(text.size()) + ":"));
  hash.update(bytes_of(text));
}

void add(Sha256& hash, uint64_t number) { add(hash, std::to_string(number)); }

void add_file_times(Sha256& hash, const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return;
  add(hash, static_cast<uint64_t>(info.st_size));
  add(hash, static_cast<uint64_t>(info.st_mtim.tv_sec));
  add(hash, static_cast<uint64_t>(info.st_mtim.tv_nsec));
}

// Of the file, or of the weight files in the folder. A file that was changed in place, where no
// sample lies, is noticed by these.
void add_files(Sha256& hash, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return add_file_times(hash, path);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".safetensors")) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  for (const std::string& name : files) {
    add(hash, name);
    add_file_times(hash, path + "/" + name);
  }
}

void add_samples(Sha256& hash, std::span<const uint8_t> bytes) {
  constexpr size_t kSampleBytes = 512;
  if (bytes.size() <= 3 * kSampleBytes) return hash.update(bytes);
  hash.update(bytes.first(kSampleBytes));
  hash.update(bytes.subspan(bytes.size() / 2, kSampleBytes));
  hash.update(bytes.last(kSampleBytes));
}

void add_tensors(Sha256& hash, const TensorSource& source) {
  for (const StoredTensor& tensor : source.tensors()) {
    add(hash, tensor.name);
    add(hash, dtype_info(tensor.type).name);
    add(hash, tensor.shape.size());
    for (const uint64_t extent : tensor.shape) add(hash, extent);
    add_samples(hash, tensor.bytes);
    add_samples(hash, tensor.scales.bytes);
  }
}

// What quantizing and packing make of a fixed row, in every format that --weights can give.
void add_layout(Sha256& hash) {
  constexpr size_t kElements = 256;
  std::vector<std::vector<float>> rows(kPanelRows, std::vector<float>(kElements));
  const uint8_t* float_rows[kPanelRows];
  for (size_t r = 0; r < kPanelRows; ++r) {
    for (size_t i = 0; i < kElements; ++i) {
      const auto mixed = static_cast<uint32_t>(r * kElements + i) * 2654435761u >> 8;
      rows[r][i] = static_cast<float>(mixed) * 0x1p-24f - 0.5f;
    }
    float_rows[r] = reinterpret_cast<const uint8_t*>(rows[r].data());
  }
  std::vector<uint8_t> panel(kElements * kPanelRows * sizeof(float));
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    const bool quantize = dtype_info(type).block_elements > 1;
    std::vector<uint8_t> blocks(row_bytes(type, kElements) * kPanelRows);
    const uint8_t* pointers[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) {
      uint8_t* row = blocks.data() + r * row_bytes(type, kElements);
      pointers[r] = quantize ? row : float_rows[r];
      if (quantize) CHECK(quantize_row(type, rows[r].data(), row, kElements));
    }
    std::fill(panel.begin(), panel.end(), 0);
    // The bytes of floats as halves may be no numbers; that does not matter here.
    (void)!pack_panel(type, pointers, kElements, panel.data());
    hash.update(panel);
  }
}

std::string header_of(const std::string& key, std::span<const uint8_t> memory, ThreadPool& pool) {
  const size_t chunks = (memory.size() + kChunkBytes - 1) / kChunkBytes;
  std::vector<uint64_t> hashes(chunks);
  pool.parallel_for(chunks, [&](size_t i, int) {
    const size_t begin = i * kChunkBytes;
    const size_t bytes = std::min(kChunkBytes, memory.size() - begin);
    hashes[i] = XXH3_64bits(memory.data() + begin, bytes);
  });
  std::string header(kMagic, kMagicBytes);
  header += key;
  const auto append = [&](uint64_t value) {
    header.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(memory.size());
  for (const uint64_t hash : hashes) append(hash);
  append(XXH3_64bits(header.data(), header.size()));
  return header;
}

size_t header_bytes(size_t memory_bytes) {
  const size_t chunks = (memory_bytes + kChunkBytes - 1) / kChunkBytes;
  return kMagicBytes + kKeyBytes + sizeof(uint64_t) * (chunks + 2);
}

size_t data_offset(size_t memory_bytes) {
  return (header_bytes(memory_bytes) + kDataAlign - 1) / kDataAlign * kDataAlign;
}

// Whether all bytes came.
bool read_at(int fd, uint64_t offset, std::span<uint8_t> target) {
  while (!target.empty()) {
    const ssize_t got = ::pread(fd, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    target = target.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace

std::string panel_cache_key(const TensorSource& source, std::string_view recipe) {
  Sha256 hash;
  add(hash, recipe);
  add_layout(hash);
  add_files(hash, source.path());
  add_tensors(hash, source);
  return hash.hex();
}

std::string tensors_key(const TensorSource& source) {
  Sha256 hash;
  add_tensors(hash, source);
  return hash.hex();
}

std::string panel_cache_path(const std::string& models_dir, const std::string& key) {
  return models_dir + "/cache/" + key + kEnding;
}

Status read_panel_cache(const std::string& path, const std::string& key, std::span<uint8_t> memory,
                        ThreadPool& pool) {
  CHECK(key.size() == kKeyBytes);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return not_found(path + ": is not there");
  TRY_ASSIGN(const FileDescriptor file, open_file(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return io_error(path + ": is not a regular file");
  }
  const size_t data = data_offset(memory.size());
  if (static_cast<uint64_t>(info.st_size) != data + memory.size()) {
    return damaged(path + ": has " + std::to_string(info.st_size) + " bytes, not " +
                   std::to_string(data + memory.size()));
  }
  std::atomic<bool> complete{true};
  const size_t chunks = (memory.size() + kChunkBytes - 1) / kChunkBytes;
  pool.parallel_for(chunks, [&](size_t i, int) {
    const size_t begin = i * kChunkBytes;
    const size_t bytes = std::min(kChunkBytes, memory.size() - begin);
    if (!read_at(file.get(), data + begin, memory.subspan(begin, bytes))) complete.store(false);
  });
  std::string header(header_bytes(memory.size()), '\0');
  auto* header_start = reinterpret_cast<uint8_t*>(header.data());
  if (!read_at(file.get(), 0, {header_start, header.size()}) || !complete.load()) {
    return io_error(path + ": cannot be read");
  }
  if (header != header_of(key, memory, pool)) {
    return damaged(path + ": does not hold what its name and hashes say");
  }
  return ok_status();
}

Status write_panel_cache(const std::string& path, const std::string& key,
                         std::span<const uint8_t> memory, ThreadPool& pool) {
  constexpr uint64_t kSpareBytes = uint64_t{1} << 30;  // never fill the user's disk
  CHECK(key.size() == kKeyBytes);
  const std::string folder = std::filesystem::path(path).parent_path();
  TRY(make_folders(folder));
  keep_newest(folder, kEnding, kPanelCachesMax);
  if (free_bytes(folder) < memory.size() + kSpareBytes) {
    return exhausted(folder + ": has no room for " + megabytes(memory.size()) +
                     " of quantized weights and 1 GB to spare");
  }
  TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const std::string header = header_of(key, memory, pool);
  TRY(file.write(bytes_of(header)));
  TRY(file.write(std::vector<uint8_t>(data_offset(memory.size()) - header.size())));
  TRY(file.write(memory));
  TRY(file.commit());
  keep_newest(folder, kEnding, kPanelCachesMax);
  return ok_status();
}

}  // namespace kvikk
