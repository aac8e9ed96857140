// A block's file, little-endian: magic "KVIKKPB1" | key | groups u64 (a bit for each) | tokens
// i32[64] | the slabs of those groups | xxh3 u64 of all before it. Its name is the key and the
// groups. Files are not forced to the disk: one that a crash cut off fails its checksum.

#include "kv/prefix_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "base/mapped_file.h"

namespace kvikk {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "KVIKKPB1";
constexpr size_t kGroupsMax = 32;

struct BlockHeader {
  char magic[8];
  BlockKey key;
  uint64_t groups;
  TokenId tokens[kPageTokens];
};
static_assert(sizeof(BlockHeader) == 8 + 16 + 8 + 4 * kPageTokens);

BlockHeader header_of(const BlockKey& key, uint32_t groups, std::span<const TokenId> tokens) {
  CHECK(tokens.size() == kPageTokens);
  BlockHeader header = {{}, key, groups, {}};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  std::copy(tokens.begin(), tokens.end(), header.tokens);
  return header;
}

constexpr char kNameFormat[] = "%016llx%016llx-%08x.kv";
constexpr size_t kNameBytes = 16 + 16 + 1 + 8 + 3;

std::string name_of(const BlockKey& key, uint32_t groups) {
  char name[kNameBytes + 1];
  std::snprintf(name, sizeof name, kNameFormat, static_cast<unsigned long long>(key.high),
                static_cast<unsigned long long>(key.low), groups);
  return name;
}

// False where a file has another kind of name.
bool parse_name(const std::string& name, BlockKey& key, uint32_t& groups) {
  unsigned long long high = 0, low = 0;
  unsigned mask = 0;
  if (std::sscanf(name.c_str(), "%16llx%16llx-%8x.kv", &high, &low, &mask) != 3) return false;
  key = {low, high};
  groups = mask;
  return name_of(key, groups) == name;
}

std::string folder_of(const std::string& identity) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(identity.data(), identity.size())));
  return text;
}

// Of one's own, like the texts that can be made out in it.
Status make_private_folder(const std::string& path) {
  TRY(make_folders(path));
  return ::chmod(path.c_str(), S_IRWXU) == 0 ? ok_status()
                                             : file_error(path, "change the rights of", errno);
}

Status write_file(const std::string& path, std::span<const uint8_t> bytes) {
  TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TRY(file.write(bytes));
  return file.commit_unflushed();
}

}  // namespace

Result<std::unique_ptr<PrefixStore>> PrefixStore::open(const std::string& folder,
                                                       uint64_t bytes_max,
                                                       const std::string& identity,
                                                       const KvShape& shape) {
  CHECK(shape.groups.size() <= kGroupsMax);
  const std::string own = folder + "/" + folder_of(identity);
  TRY(make_private_folder(own));
  std::unique_ptr<PrefixStore> store(new PrefixStore(own, bytes_max, shape));
  TRY(store->scan());
  store->writer_ = std::thread([self = store.get()] { self->write_jobs(); });
  return store;
}

PrefixStore::PrefixStore(std::string folder, uint64_t bytes_max, const KvShape& shape)
    : folder_(std::move(folder)), bytes_max_(bytes_max) {
  for (size_t g = 0; g < shape.groups.size(); ++g) slab_bytes_.push_back(shape.slab_bytes(g));
}

PrefixStore::~PrefixStore() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

Status PrefixStore::scan() {
  struct Found {
    fs::file_time_type time;
    BlockKey key;
    uint32_t groups;
  };
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    remove_old_part(it->path());
    Found file = {};
    if (!parse_name(it->path().filename(), file.key, file.groups)) continue;
    std::error_code ignored;
    const uint64_t bytes = file_bytes(file.groups);
    if (bytes == 0 || it->file_size(ignored) != bytes) {
      fs::remove(it->path(), ignored);
      continue;
    }
    file.time = it->last_write_time(ignored);
    found.push_back(file);
  }
  if (error) return file_error(folder_, "read", error.value());
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.time < b.time; });
  for (const Found& file : found) add(file.key, file.groups);
  make_room(0);
  return ok_status();
}

std::string PrefixStore::path_of(const BlockKey& key, uint32_t groups) const {
  return folder_ + "/" + name_of(key, groups);
}

// 0 where `groups` has no bits, or such as are no group's.
uint64_t PrefixStore::file_bytes(uint32_t groups) const {
  if (groups == 0) return 0;
  uint64_t bytes = sizeof(BlockHeader) + sizeof(uint64_t);
  for (size_t g = 0; g < kGroupsMax; ++g) {
    if ((groups >> g & 1) == 0) continue;
    if (g >= slab_bytes_.size()) return 0;
    bytes += slab_bytes_[g];
  }
  return bytes;
}

bool PrefixStore::holds(const BlockKey& key, uint32_t groups) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && (groups & ~found->second.groups) == 0;
}

void PrefixStore::add(const BlockKey& key, uint32_t groups) {
  forget(key);  // a file of fewer groups
  const uint64_t bytes = file_bytes(groups);
  entries_[key] = {groups, bytes, ages_.insert(ages_.end(), key)};
  stats_.bytes += bytes;
  stats_.blocks = entries_.size();
}

// Also removes its file.
void PrefixStore::forget(const BlockKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  ::unlink(path_of(key, found->second.groups).c_str());
  stats_.bytes -= found->second.bytes;
  ages_.erase(found->second.age);
  entries_.erase(found);
  stats_.blocks = entries_.size();
}

void PrefixStore::make_room(uint64_t bytes) {
  while (!ages_.empty() && stats_.bytes + bytes > bytes_max_) forget(BlockKey(ages_.front()));
}

BlockKey PrefixStore::key_of(const BlockKey* before, std::span<const TokenId> tokens,
                             uint64_t salt) {
  struct {
    BlockKey before;
    uint64_t salt;
  } head = {before == nullptr ? BlockKey{} : *before, salt};
  uint8_t bytes[sizeof head + kPageTokens * sizeof(TokenId)];
  CHECK(tokens.size() == kPageTokens);
  std::memcpy(bytes, &head, sizeof head);
  std::memcpy(bytes + sizeof head, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits(bytes, sizeof bytes);
  return {hash.low64, hash.high64};
}

uint32_t PrefixStore::groups(const BlockKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? 0 : found->second.groups;
}

void PrefixStore::put(const BlockKey& key, std::span<const TokenId> tokens, PagePool& pool,
                      std::span<const SlabId> slabs, bool wait) {
  Job job = {key, 0, {}};
  for (size_t g = 0; g < slabs.size(); ++g) {
    if (slabs[g] != kNoSlab) job.groups |= uint32_t{1} << g;
  }
  const uint64_t size = file_bytes(job.groups);
  {
    std::unique_lock lock(mutex_);
    if (size == 0 || size > bytes_max_ || !stats_.error.empty() || holds(key, job.groups)) return;
    const auto fits = [&] { return jobs_.empty() || job_bytes_ + size <= kQueueBytesMax; };
    if (wait) changed_.wait(lock, fits);
    if (!fits()) {
      ++stats_.skipped;
      return;
    }
    job_bytes_ += size;
  }
  job.bytes.reserve(size);
  const auto append = [&](const void* data, size_t count) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    job.bytes.insert(job.bytes.end(), bytes, bytes + count);
  };
  const BlockHeader header = header_of(key, job.groups, tokens);
  append(&header, sizeof header);
  for (size_t g = 0; g < slabs.size(); ++g) {
    if (slabs[g] != kNoSlab) append(pool.slab(g, slabs[g]), slab_bytes_[g]);
  }
  const uint64_t sum = XXH3_64bits(job.bytes.data(), job.bytes.size());
  append(&sum, sizeof sum);
  CHECK(job.bytes.size() == size);
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void PrefixStore::write_jobs() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = jobs_.front();  // stays where it is while others are appended
    // The same block may have been given up twice before the first was written.
    if (stats_.error.empty() && !holds(job.key, job.groups)) {
      make_room(job.bytes.size());
      lock.unlock();
      const Status status = write_file(path_of(job.key, job.groups), job.bytes);
      lock.lock();
      if (status.ok()) {
        add(job.key, job.groups);
        ++stats_.written;
      } else {
        stats_.error = status.message();
      }
    }
    job_bytes_ -= job.bytes.size();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

bool PrefixStore::read(const BlockKey& key, std::span<const TokenId> tokens, PagePool& pool,
                       std::span<const SlabId> slabs) {
  const uint32_t mask = groups(key);
  const std::string path = path_of(key, mask);
  const auto bad = [&] {
    std::lock_guard lock(mutex_);
    forget(key);
    return false;
  };
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return bad();
  const std::span<const uint8_t> bytes = file->bytes();
  if (bytes.size() != file_bytes(mask)) return bad();
  const BlockHeader header = header_of(key, mask, tokens);
  if (std::memcmp(bytes.data(), &header, sizeof header) != 0) return bad();
  const std::span<const uint8_t> summed = bytes.first(bytes.size() - sizeof(uint64_t));
  uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + summed.size(), sizeof sum);
  if (XXH3_64bits(summed.data(), summed.size()) != sum) return bad();

  const uint8_t* at = bytes.data() + sizeof header;
  for (size_t g = 0; g < slabs.size(); ++g) {
    if ((mask >> g & 1) == 0) continue;
    CHECK(slabs[g] != kNoSlab);
    std::memcpy(pool.slab(g, slabs[g]), at, slab_bytes_[g]);
    at += slab_bytes_[g];
  }
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // which are the newest, for the next start
  std::lock_guard lock(mutex_);
  ++stats_.read;
  const auto found = entries_.find(key);
  if (found != entries_.end()) ages_.splice(ages_.end(), ages_, found->second.age);
  return true;
}

PrefixStoreStats PrefixStore::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace kvikk
