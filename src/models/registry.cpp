#include "models/registry.h"

namespace kvikk {

extern const ModelDef kLlama;       // llama.cpp
extern const ModelDef kMistral;     // mistral.cpp
extern const ModelDef kQwen2;       // qwen2.cpp
extern const ModelDef kQwen3;       // qwen3.cpp
extern const ModelDef kSmolLm3;     // smollm3.cpp
extern const ModelDef kGemma;       // gemma.cpp
extern const ModelDef kGemma2;      // gemma2.cpp
extern const ModelDef kGemma3;      // gemma3.cpp
extern const ModelDef kPhi3;        // phi3.cpp
extern const ModelDef kOlmo2;       // olmo2.cpp
extern const ModelDef kGranite;     // granite.cpp
extern const ModelDef kGlm4;        // glm4.cpp
extern const ModelDef kCohere;      // cohere.cpp
extern const ModelDef kCohere2;     // cohere.cpp
extern const ModelDef kStarcoder2;  // starcoder2.cpp
extern const ModelDef kStablelm;    // stablelm.cpp
extern const ModelDef kGpt2;        // gpt2.cpp
extern const ModelDef kGptNeox;     // gpt_neox.cpp
extern const ModelDef kPhi;         // phi.cpp
extern const ModelDef kFalcon;      // falcon.cpp
extern const ModelDef kExaone4;     // exaone4.cpp
extern const ModelDef kErnie45;     // ernie4_5.cpp
extern const ModelDef kHunyuan;     // hunyuan.cpp
extern const ModelDef kSeedOss;     // seed_oss.cpp
extern const ModelDef kNemotron;    // nemotron.cpp
extern const ModelDef kMixtral;     // mixtral.cpp
extern const ModelDef kQwen2Moe;    // qwen_moe.cpp
extern const ModelDef kQwen3Moe;    // qwen_moe.cpp
extern const ModelDef kGlm4Moe;     // glm4_moe.cpp
extern const ModelDef kGptOss;      // gpt_oss.cpp
extern const ModelDef kDeepSeek;    // deepseek.cpp
extern const ModelDef kOlmoe;       // olmoe.cpp
extern const ModelDef kGraniteMoe;  // granitemoe.cpp
extern const ModelDef kBert;        // bert.cpp

std::span<const ModelDef* const> model_registry() {
  static constexpr const ModelDef* kModels[] = {
      &kLlama,      &kMistral,  &kQwen2,    &kQwen3,    &kSmolLm3,    &kGemma,    &kGemma2,
      &kGemma3,     &kPhi3,     &kOlmo2,    &kGranite,  &kGlm4,       &kCohere,   &kCohere2,
      &kStarcoder2, &kStablelm, &kGpt2,     &kGptNeox,  &kPhi,        &kFalcon,   &kExaone4,
      &kErnie45,    &kHunyuan,  &kSeedOss,  &kNemotron, &kMixtral,    &kQwen2Moe, &kQwen3Moe,
      &kGlm4Moe,    &kGptOss,   &kDeepSeek, &kOlmoe,    &kGraniteMoe, &kBert};
  return kModels;
}

Result<const ModelDef*> find_model_def(const ConfigKeys& keys) {
  std::string known;
  const auto offer = [&](const char* name) {
    if (name == nullptr) return false;
    known += (known.empty() ? "" : ", ") + std::string(name);
    return keys.architecture() == name;
  };
  for (const ModelDef* def : model_registry()) {
    if (keys.is_gguf() && offer(def->gguf)) return def;
    for (const char* type : def->model_types) {
      if (!keys.is_gguf() && offer(type)) return def;
    }
  }
  return unsupported(keys.path() + ": " + (keys.is_gguf() ? "architecture" : "model_type") + " '" +
                     keys.architecture() + "' is not supported. Supported: " + known + ".");
}

Result<ModelConfig> read_model_config(const ConfigKeys& keys) {
  TRY_ASSIGN(const ModelDef* def, find_model_def(keys));
  return def->read_config(keys);
}

std::string families_table() {
  std::string text =
      "| family | GGUF architecture | model_type of a folder | what it covers | checked by |\n"
      "|---|---|---|---|---|\n";
  for (const ModelDef* def : model_registry()) {
    std::string types;
    for (const char* type : def->model_types) {
      if (type != nullptr) types += (types.empty() ? "`" : ", `") + std::string(type) + "`";
    }
    const std::string gguf = def->gguf == nullptr ? "-" : "`" + std::string(def->gguf) + "`";
    text += "| " + std::string(def->name) + " | " + gguf + " | " + (types.empty() ? "-" : types) +
            " | " + def->note + " | " + def->goldens + " |\n";
  }
  return text;
}

}  // namespace kvikk
