#include "weights/fetch_files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <vector>

namespace kvikk {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr long kLockPollNanoseconds = 50 * 1000 * 1000;
constexpr int kFolderEntriesMax = 10000;

struct ZipDiscard {
  void operator()(zip_t* archive) const { ::zip_discard(archive); }
};
struct ZipClose {
  void operator()(zip_file_t* file) const { ::zip_fclose(file); }
};

}  // namespace

Sha256::Sha256() : context_(::EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr);
  CHECK(::EVP_DigestInit_ex(context_, ::EVP_sha256(), nullptr) == 1);
}

Sha256::Sha256(const Sha256& other) : Sha256() { *this = other; }

Sha256& Sha256::operator=(const Sha256& other) {
  CHECK(::EVP_MD_CTX_copy_ex(context_, other.context_) == 1);
  return *this;
}

Sha256::~Sha256() { ::EVP_MD_CTX_free(context_); }

void Sha256::update(std::span<const uint8_t> bytes) {
  CHECK(::EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() const {
  const Sha256 copy = *this;
  std::array<uint8_t, 32> digest;
  CHECK(::EVP_DigestFinal_ex(copy.context_, digest.data(), nullptr) == 1);
  std::string text;
  for (const uint8_t byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<FileDescriptor> lock_file(const std::string& path, const std::function<Status()>& wait) {
  TRY_ASSIGN(FileDescriptor file, open_file(path, O_RDWR | O_CREAT));
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return file_error(path, "cannot be locked", errno);
    TRY(wait());
    const timespec pause{0, kLockPollNanoseconds};
    ::nanosleep(&pause, nullptr);
  }
  return file;
}

Status read_range(int fd, uint64_t offset, uint64_t bytes, const std::string& path,
                  const ByteSink& sink) {
  std::vector<uint8_t> chunk(kChunkBytes);
  for (uint64_t done = 0; done < bytes;) {
    const size_t want = static_cast<size_t>(std::min<uint64_t>(chunk.size(), bytes - done));
    const ssize_t got = ::pread(fd, chunk.data(), want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(path, "cannot be read", errno);
    if (got == 0) return damaged(path + ": became shorter while it was read");
    TRY(sink({chunk.data(), static_cast<size_t>(got)}));
    done += static_cast<uint64_t>(got);
  }
  return ok_status();
}

uint64_t folder_bytes(const std::string& path) {
  std::error_code error;
  uint64_t bytes = 0;
  int entries = 0;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(path, error); !error && at != Walk() && entries < kFolderEntriesMax;
       at.increment(error), ++entries) {
    std::error_code gone;  // the downloader may remove a file between the two calls
    const uint64_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

Status unpack_piece(const std::string& package_path, const CatalogPiece& piece,
                    const ByteSink& sink) {
  const std::string where = package_path + ": ";
  int code = 0;
  const std::unique_ptr<zip_t, ZipDiscard> archive(
      ::zip_open(package_path.c_str(), ZIP_RDONLY, &code));
  if (archive == nullptr) return damaged(where + "is not a package file");
  const std::string name(piece.file);
  zip_stat_t info;
  ::zip_stat_init(&info);
  if (::zip_stat(archive.get(), name.c_str(), 0, &info) != 0) {
    return damaged(where + "has no file " + name);
  }
  if ((info.valid & ZIP_STAT_SIZE) == 0 || info.size != piece.bytes) {
    return damaged(where + name + " has " + std::to_string(info.size) +
                   " bytes; the catalog says " + std::to_string(piece.bytes));
  }
  const std::unique_ptr<zip_file_t, ZipClose> file(::zip_fopen(archive.get(), name.c_str(), 0));
  if (file == nullptr) return damaged(where + name + " cannot be unpacked");
  std::vector<uint8_t> chunk(kChunkBytes);
  uint64_t done = 0;
  for (;;) {
    const zip_int64_t got = ::zip_fread(file.get(), chunk.data(), chunk.size());
    if (got < 0) return damaged(where + name + ": " + ::zip_file_strerror(file.get()));
    if (got == 0) break;
    done += static_cast<uint64_t>(got);
    if (done > piece.bytes) break;
    TRY(sink({chunk.data(), static_cast<size_t>(got)}));
  }
  if (done != piece.bytes) return damaged(where + name + " unpacks to another size than it says");
  return ok_status();
}

std::string megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace kvikk
