#include "models/registry.h"

#include <array>

namespace kvikk {

extern const ModelDef kLlama;   // llama.cpp
extern const ModelDef kQwen2;   // qwen2.cpp
extern const ModelDef kGemma3;  // gemma3.cpp

std::span<const ModelDef* const> model_registry() {
  static constexpr std::array<const ModelDef*, 3> kModels = {&kLlama, &kQwen2, &kGemma3};
  return kModels;
}

Result<const ModelDef*> find_model_def(const GgufFile& file) {
  TRY_ASSIGN(const std::string architecture, file.get_string("general.architecture"));
  std::string known;
  for (const ModelDef* def : model_registry()) {
    if (architecture == def->architecture) return def;
    known += (known.empty() ? "" : ", ") + std::string(def->architecture);
  }
  return unsupported(file.path() + ": architecture '" + architecture +
                     "' is not supported. Supported: " + known + ".");
}

}  // namespace kvikk
