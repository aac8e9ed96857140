// Mistral and Mistral Nemo: Llama's equations; the first version's layers all slide over a window.
// Its GGUF files are of the architecture "llama" and have no window, so they see all.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  TRY(read_window(keys, c));
  TRY_ASSIGN(const bool listed, read_layer_types(keys, c));
  for (size_t i = 0; i < c.layers && !listed; ++i) c.layer[i].sliding = c.window > 0;
  TRY(check_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kMistral;
const ModelDef kMistral = {
    "Mistral",  nullptr, {"mistral"}, "with and without window; Nemo", "mistral, mistral-nemo",
    read_config};

}  // namespace kvikk
