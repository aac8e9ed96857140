#include "index_bytes.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/files.h"
#include "base/mapped_file.h"

namespace kvikk {

namespace {

// A folder for one file, which goes when this does.
class Folder {
 public:
  static Result<Folder> make() {
    std::error_code error;
    std::string path = std::filesystem::temp_directory_path(error).string();
    if (error) return file_error("the folder for temporary files", "find", error.value());
    path += "/kvikk-index-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return file_error(path, "make", errno);
    return Folder(std::move(path));
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  std::string file() const { return path_ + "/pickled.kvx"; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace

Result<std::string> index_to_bytes(VectorIndex& index) {
  TRY_ASSIGN(const Folder folder, Folder::make());
  TRY(index.save(folder.file()));
  TRY_ASSIGN(const MappedFile file, MappedFile::open(folder.file()));
  const std::span<const uint8_t> bytes = file.bytes();
  return std::string(bytes.begin(), bytes.end());
}

Result<std::unique_ptr<VectorIndex>> index_from_bytes(const std::string& bytes,
                                                      const IndexRuntime& runtime) {
  TRY_ASSIGN(const Folder folder, Folder::make());
  TRY(write_file_atomically(folder.file(), bytes_of(bytes)));
  return VectorIndex::open(folder.file(), runtime);  // maps it; a mapping outlives the name
}

}  // namespace kvikk
