// Granite 3 with experts: Granite's factors; the router's softmax runs over the chosen experts,
// whose gates and ups share a tensor.

#include "models/moe_family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  if (keys.is_gguf()) c.rope_style = RopeStyle::kPairs;
  TRY(read_granite_factors(keys, c));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  c.moe.renormalize = true;
  TRY(read_moe(keys, c));
  if (keys.is_gguf()) return c;
  c.moe.names.router = "model.layers.#.block_sparse_moe.router.layer";
  c.moe.names.gate_up = "model.layers.#.block_sparse_moe.input_linear";
  c.moe.names.down = "model.layers.#.block_sparse_moe.output_linear";
  return c;
}

}  // namespace

extern const ModelDef kGraniteMoe;
const ModelDef kGraniteMoe = {"Granite MoE", "granitemoe", {"granitemoe"}, "Granite 3 with experts",
                              "granitemoe",  read_config};

}  // namespace kvikk
