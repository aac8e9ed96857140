// Qwen 3: Llama's equations; each head of q and k is normalised before its rotation.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  name_qk_norms(keys, c);
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  if (!keys.is_gguf()) TRY(read_qwen_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kQwen3;
const ModelDef kQwen3 = {"Qwen 3", "qwen3", {"qwen3"}, "dense sizes", "qwen3", read_config};

}  // namespace kvikk
