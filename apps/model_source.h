#pragma once
// From -m MODEL to a loaded engine: finds the file, fetches a catalog model that is not there yet,
// shows progress.

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "kvikk/engine_options.h"
#include "shell.h"
#include "weights/catalog.h"

namespace kvikk {

// The model that makes vectors where none is named.
inline constexpr char kDefaultEmbedder[] = "all-minilm-l6-v2";

struct ModelsDirOptions {
  std::string models_dir;  // empty: the default
  bool accept_licence = false;

  template <class V>
  void visit(V&& v) {
    v(models_dir, "models_dir", 0, 4096, "where fetched models are; default ~/.cache/kvikk/models");
    v(accept_licence, "accept_licence", false, true, "agree to the terms of the model to fetch");
  }
  std::string directory() const { return models_dir.empty() ? default_models_dir() : models_dir; }
};

struct ModelOptions {
  std::string model = "smollm2-135m";
  ModelsDirOptions dir;

  template <class V>
  void visit(V&& v) {
    v(model, "model", 1, 4096, "a name from 'kvikk models', a .gguf file, or a folder");
    dir.visit(v);
  }
};

// Fetches a catalog model, with progress; asks for the terms on a terminal. Returns its path.
Result<std::string> fetch(Shell& shell, const CatalogEntry& entry, const ModelsDirOptions& options);

// The path of the model's file; fetches it first if need be.
Result<std::string> find_model(Shell& shell, const ModelOptions& options);

// Whether the model has a chat template; a base model has none.
Result<bool> has_chat_template(const OpenedModel& file);

// A context that holds `needed` tokens, or kInvalidArgument where another one was asked for; `what`
// needs them.
Status fit_context(int64_t needed, const char* what, EngineOptions& options);

struct LoadedEngine {
  std::unique_ptr<Engine> engine;
  std::string path;
  double load_seconds = 0;
};
// `path` is what find_model found for `model`; what is worth keeping is kept in its models folder.
Result<LoadedEngine> load_engine(Shell& shell, const ModelOptions& model, const std::string& path,
                                 const EngineOptions& options);
// find_model and load_engine.
Result<LoadedEngine> load_engine(Shell& shell, const ModelOptions& model,
                                 const EngineOptions& options);

// Loads the model of `path` to make vectors of texts.
Result<std::unique_ptr<Embedder>> load_embedder(Shell& shell, const std::string& path,
                                                const EmbedderOptions& options);

}  // namespace kvikk
