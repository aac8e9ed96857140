#pragma once
// A model as the user names it: a GGUF file, or a folder with config.json and safetensors. Opened,
// its configuration read and checked, no weight read yet.

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "models/config.h"
#include "models/config_keys.h"
#include "text/tokenizer.h"
#include "weights/gguf.h"
#include "weights/tensor_source.h"

namespace kvikk {

// What can be told about a model before its family is known.
struct OpenedModel {
  std::string path;
  std::shared_ptr<const TensorSource> tensors;
  std::shared_ptr<const GgufFile> gguf;  // null: a folder

  // Errors: those of GgufFile::open and SafetensorsFolder::open.
  static Result<OpenedModel> open(const std::string& path);

  Result<ConfigKeys> config_keys() const;
  // Nothing where the model has none: it runs on token ids.
  Result<std::optional<Tokenizer>> tokenizer() const;
  Result<std::optional<std::string>> chat_template() const;
};

struct ModelFile : OpenedModel {
  ModelConfig config;

  // Errors: also those of the family's configuration.
  static Result<ModelFile> open(const std::string& path);
  // Errors: kUnsupported for an encoder.
  Status check_writes_text() const;
};

}  // namespace kvikk
