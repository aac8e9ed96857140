#pragma once
// What Engine and Embedder do alike when they load a model.

#include <string>

#include "kvikk/engine.h"
#include "models/tensor_loader.h"
#include "text/tokenizer.h"

namespace kvikk {

// How the weights are to be read. `progress` may be empty, and outlives the result.
LoadOptions load_options(const EngineOptions& options, const Engine::OnProgress& progress);

// kDamaged where the tokenizer has tokens that the embedding has not. `path` begins the message.
Status check_vocabulary(const std::string& path, const Tokenizer& tokenizer, size_t vocabulary);

}  // namespace kvikk
