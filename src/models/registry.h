#pragma once
// The model families. A family is one file that reads its configuration, and one line in
// registry.cpp.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/config.h"
#include "weights/gguf.h"

namespace kvikk {

struct ModelDef {
  const char* architecture;  // general.architecture of the GGUF file
  const char* note;          // what it covers, for people
  // Reads and checks the family's keys. Errors name the key and what it should be.
  Result<ModelConfig> (*read_config)(const GgufFile& file);
};

std::span<const ModelDef* const> model_registry();

// kUnsupported with the list of families when there is none.
Result<const ModelDef*> find_model_def(const GgufFile& file);

// The part of a configuration that all families of this kind share, read from "ARCH.*".
Result<ModelConfig> read_common_config(const GgufFile& file, const std::string& architecture);

}  // namespace kvikk
