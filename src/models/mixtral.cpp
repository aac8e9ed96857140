// Mixtral: Mistral's attention; each MLP is a mixture of experts whose router's softmax runs over
// the chosen ones. In GGUF it is architecture "llama" with experts (llama.cpp).

#include "models/moe_family.h"

namespace kvikk {

Status read_mixtral_experts(const ConfigKeys& keys, ModelConfig& c) {
  c.moe.renormalize = true;
  TRY(read_moe(keys, c));
  if (keys.is_gguf()) return ok_status();
  c.moe.names.router = "model.layers.#.block_sparse_moe.gate";
  c.moe.names.gate = "model.layers.#.block_sparse_moe.experts.@.w1";
  c.moe.names.up = "model.layers.#.block_sparse_moe.experts.@.w3";
  c.moe.names.down = "model.layers.#.block_sparse_moe.experts.@.w2";
  return ok_status();
}

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  TRY(read_window(keys, c));
  for (LayerConfig& layer : c.layer) layer.sliding = c.window > 0;
  TRY(read_mixtral_experts(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kMixtral;
const ModelDef kMixtral = {"Mixtral",   nullptr,
                           {"mixtral"}, "8x7B, 8x22B; its GGUF files are of architecture llama",
                           "mixtral",   read_config};

}  // namespace kvikk
