#pragma once
// The tiny random models with known logits that tests of models/ run over: those of
// tests/data/models and, where KVIKK_SHARED_DATA names a folder with more of the same layout, those
// of its fixtures. Every model file of a case (GGUF files, the folder itself) is a case of its own.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "kvikk/token.h"
#include "models/model_file.h"
#include "models/registry.h"
#include "models_fixture.h"

namespace kvikk {

struct GoldenCase {
  std::string name;      // "llama" or "llama/model.gguf"
  std::string folder;    // with expected.json
  std::string path;      // the model
  std::string expected;  // file of logits
  bool own = false;      // a quantized twin: the greedy tokens are of the unquantized model
};

inline void PrintTo(const GoldenCase& golden, std::ostream* out) { *out << golden.name; }

// What expected.json says.
struct Golden {
  std::vector<TokenId> short_prompt, long_prompt, greedy;
  std::vector<uint32_t> long_positions;
  size_t vocabulary = 0;
  std::vector<float> logits;  // [short prompt, vocabulary], then [long positions, vocabulary]
};

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, false);
}

inline Golden read_golden(const GoldenCase& golden) {
  const nlohmann::json json = read_json(golden.folder + "/expected.json");
  Golden out;
  out.short_prompt = json["short_prompt"].get<std::vector<TokenId>>();
  out.long_prompt = json["long_prompt"].get<std::vector<TokenId>>();
  out.long_positions = json["long_positions"].get<std::vector<uint32_t>>();
  if (!golden.own) out.greedy = json["greedy_tokens"].get<std::vector<TokenId>>();
  out.vocabulary = json["vocab_size"].get<size_t>();
  out.logits = read_floats(golden.folder + "/" + golden.expected);
  return out;
}

// A case of the shared folder may be of a family that is not there yet; a broken file is not that.
inline bool family_is_known(const std::string& path) {
  const auto opened = OpenedModel::open(path);
  if (!opened.ok()) return true;
  const auto keys = opened->config_keys();
  return !keys.ok() || find_model_def(*keys).ok();
}

inline void add_cases(const std::filesystem::path& root, std::vector<GoldenCase>& cases) {
  std::error_code missing;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root, missing)) {
    if (std::filesystem::exists(entry.path() / "expected.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const auto& folder : folders) {
    const nlohmann::json json = read_json((folder / "expected.json").string());
    const std::string name = folder.filename().string();
    const std::string common = json.value("expected_file", "expected.f32");
    std::vector<GoldenCase> found;
    if (std::filesystem::exists(folder / "model.safetensors")) {
      found.push_back({name, folder.string(), folder.string(), common, false});
    }
    for (const auto& twin : json.value("gguf", nlohmann::json::array())) {
      const std::string file = twin["file"].get<std::string>();
      if (!std::filesystem::exists(folder / file)) continue;
      const std::string expected = twin.value("expected_file", common);
      found.push_back({name + "/" + file, folder.string(), (folder / file).string(), expected,
                       expected != common});
    }
    for (const GoldenCase& one : found) {
      const auto same = [&](const GoldenCase& other) { return other.name == one.name; };
      if (std::none_of(cases.begin(), cases.end(), same) && family_is_known(one.path)) {
        cases.push_back(one);
      }
    }
  }
}

inline std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  add_cases(std::filesystem::path(KVIKK_TEST_DATA) / "models", cases);
  const char* shared = std::getenv("KVIKK_SHARED_DATA");
  if (shared != nullptr) add_cases(std::filesystem::path(shared) / "fixtures", cases);
  return cases;
}

}  // namespace kvikk
