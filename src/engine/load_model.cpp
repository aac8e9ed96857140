#include "engine/load_model.h"

#include "weights/block_quantizer.h"

namespace kvikk {

LoadOptions load_options(const EngineOptions& options, const Engine::OnProgress& progress) {
  LoadOptions load;
  load.exact = options.exact;
  load.weights = quantized_type(options.weights);
  load.cache_dir = options.cache_dir;
  if (progress) {
    load.progress = [&progress](uint64_t done, uint64_t total) { progress({done, total}); };
  }
  return load;
}

Status check_vocabulary(const std::string& path, const Tokenizer& tokenizer, size_t vocabulary) {
  if (tokenizer.size() <= vocabulary) return ok_status();
  return damaged(path + ": the tokenizer has " + std::to_string(tokenizer.size()) +
                 " tokens, the embedding only " + std::to_string(vocabulary));
}

}  // namespace kvikk
