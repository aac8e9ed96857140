#include "models/model_file.h"

#include <filesystem>

#include "base/mapped_file.h"
#include "models/registry.h"
#include "models/vocabulary.h"
#include "weights/safetensors.h"

namespace kvikk {

Result<OpenedModel> OpenedModel::open(const std::string& path) {
  OpenedModel model;
  model.path = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    TRY_ASSIGN(SafetensorsFolder folder, SafetensorsFolder::open(path));
    model.tensors = std::make_shared<const SafetensorsFolder>(std::move(folder));
    return model;
  }
  TRY_ASSIGN(GgufFile file, GgufFile::open(path));
  model.gguf = std::make_shared<const GgufFile>(std::move(file));
  model.tensors = model.gguf;
  return model;
}

Result<ConfigKeys> OpenedModel::config_keys() const {
  if (gguf != nullptr) return ConfigKeys::of(*gguf);
  const std::string file = path + "/config.json";
  TRY_ASSIGN(const MappedFile mapped, MappedFile::open(file));
  const auto* text = reinterpret_cast<const char*>(mapped.bytes().data());
  return ConfigKeys::parse(file, {text, mapped.bytes().size()});
}

Result<std::optional<Tokenizer>> OpenedModel::tokenizer() const {
  if (gguf == nullptr) return read_folder_tokenizer(path);
  if (!gguf->has("tokenizer.ggml.model")) return std::optional<Tokenizer>();
  TRY_ASSIGN(Tokenizer tokenizer, read_tokenizer(*gguf));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Result<std::optional<std::string>> OpenedModel::chat_template() const {
  return gguf == nullptr ? read_folder_chat_template(path) : read_chat_template(*gguf);
}

Result<ModelFile> ModelFile::open(const std::string& path) {
  TRY_ASSIGN(OpenedModel opened, OpenedModel::open(path));
  ModelFile file;
  static_cast<OpenedModel&>(file) = std::move(opened);
  TRY_ASSIGN(const ConfigKeys keys, file.config_keys());
  TRY_ASSIGN(file.config, read_model_config(keys));
  return file;
}

Status ModelFile::check_writes_text() const {
  if (!config.encoder) return ok_status();
  return unsupported(path + ": is an encoder (" + config.architecture +
                     "): it makes vectors of texts ('kvikk embed') and cannot write any");
}

}  // namespace kvikk
