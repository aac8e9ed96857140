#pragma once
// The model families. A family is one file that reads its configuration, and one line in
// registry.cpp. docs/models.md shows how to add one.

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/config.h"
#include "models/config_keys.h"

namespace kvikk {

struct ModelDef {
  const char* name;                        // for people
  const char* gguf;                        // general.architecture of GGUF files, or null
  std::array<const char*, 3> model_types;  // of config.json; null: no more
  const char* note;                        // what it covers and what is special
  const char* goldens;                     // what its tests compare with
  // Reads and checks the family's keys. Errors name the key and what it should be.
  Result<ModelConfig> (*read_config)(const ConfigKeys& keys);
};

std::span<const ModelDef* const> model_registry();

// kUnsupported with the list of families when there is none.
Result<const ModelDef*> find_model_def(const ConfigKeys& keys);

// The table of docs/models.md, in Markdown.
std::string families_table();

// The family's configuration of these keys.
Result<ModelConfig> read_model_config(const ConfigKeys& keys);

}  // namespace kvikk
