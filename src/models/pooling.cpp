#include "models/pooling.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "weights/json_file.h"

namespace kvikk {

namespace {

using Json = nlohmann::json;

constexpr size_t kNamesMax = 3;
constexpr std::string_view kNames[kNamesMax] = {"mean", "cls", "last"};  // in the order of Pooling

Result<std::optional<Pooling>> read_gguf(const ModelFile& file) {
  constexpr Key kType = {"pooling_type", ""};
  TRY_ASSIGN(const ConfigKeys keys, file.config_keys());
  if (!keys.has(kType)) return std::optional<Pooling>();
  TRY_ASSIGN(const size_t type, keys.count(kType, 255));
  if (type == 0) return std::optional<Pooling>();
  if (type <= kNamesMax) return std::optional<Pooling>(static_cast<Pooling>(type - 1));
  return unsupported(keys.path() + ": " + keys.name(kType) + " is " + std::to_string(type) +
                     ". Supported: 1 (mean), 2 (cls), 3 (last).");
}

// "pooling_mode": its name, as newer files have it; else the keys that are true of pooling_mode_*,
// of which a file has one.
Result<std::optional<Pooling>> read_pooling_module(const std::string& path) {
  TRY_ASSIGN(const Json json, read_json_file(path));
  if (!json.is_object()) return damaged(path + ": is not a JSON object");
  struct Mode {
    const char* key;
    const char* name;
    Pooling pooling;
  };
  constexpr Mode kModes[] = {{"pooling_mode_mean_tokens", "mean", Pooling::kMean},
                             {"pooling_mode_cls_token", "cls", Pooling::kCls},
                             {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast}};
  std::optional<Pooling> found;
  if (const auto named = json.find("pooling_mode"); named != json.end() && !named->is_null()) {
    for (const Mode& mode : kModes) {
      if (*named == mode.name) return std::optional<Pooling>(mode.pooling);
    }
    return unsupported(path + ": pooling_mode is " + named->dump() +
                       ". Supported: \"mean\", \"cls\", \"lasttoken\".");
  }
  std::string chosen;
  for (const auto& [key, value] : json.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    if (!chosen.empty()) return unsupported(path + ": has both " + chosen + " and " + key);
    chosen = key;
    for (const Mode& mode : kModes) {
      if (key == mode.key) found = mode.pooling;
    }
  }
  if (chosen.empty() || found.has_value()) return found;
  return unsupported(path + ": " + chosen +
                     " is not supported. Supported: pooling_mode_mean_tokens, "
                     "pooling_mode_cls_token, pooling_mode_lasttoken.");
}

Result<std::optional<Pooling>> read_folder(const std::string& folder) {
  const std::string path = folder + "/modules.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<Pooling>();
  TRY_ASSIGN(const Json modules, read_json_file(path));
  if (!modules.is_array()) return damaged(path + ": is not a list of modules");
  std::optional<Pooling> pooling;
  for (const Json& module : modules) {
    if (!module.is_object() || !module.contains("type") || !module["type"].is_string()) {
      return damaged(path + ": a module has no type");
    }
    const std::string type = module["type"];
    if (type.ends_with(".Transformer") || type.ends_with(".Normalize")) continue;
    if (!type.ends_with(".Pooling")) {
      return unsupported(path + ": a module of type '" + type +
                         "' is not supported. Supported: Transformer, Pooling, Normalize.");
    }
    const auto name = module.find("path");
    if (name == module.end() || !name->is_string()) {
      return damaged(path + ": the module of type '" + type + "' has no path");
    }
    const std::string place = *name;
    if (place.empty() || place == ".." || place.find('/') != std::string::npos) {
      return damaged(path + ": path is '" + place + "'; it must be a folder beside the file");
    }
    TRY_ASSIGN(pooling, read_pooling_module(folder + "/" + place + "/config.json"));
  }
  return pooling;
}

}  // namespace

std::optional<Pooling> pooling_of(std::string_view name) {
  for (size_t i = 0; i < kNamesMax; ++i) {
    if (name == kNames[i]) return static_cast<Pooling>(i);
  }
  return std::nullopt;
}

const char* pooling_name(Pooling pooling) { return kNames[static_cast<size_t>(pooling)].data(); }

Result<Pooling> read_pooling(const ModelFile& file) {
  TRY_ASSIGN(const std::optional<Pooling> said,
             file.gguf != nullptr ? read_gguf(file) : read_folder(file.path));
  if (said.has_value()) return *said;
  return file.config.encoder ? Pooling::kMean : Pooling::kLast;
}

}  // namespace kvikk
