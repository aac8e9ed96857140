// StarCoder 2: layer norms and biases everywhere, a plain MLP with gelu (tanh form), and in some
// sizes a window for all layers.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& original) {
  ConfigKeys keys = original;
  keys.set_aliases({{"layer_norm_eps", "norm_epsilon"}});
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.gated_mlp = false;
  defaults.activation = Activation::kGeluTanh;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "use_bias", true));
  c.output_bias = c.mlp_bias = c.qkv_bias;
  if (!keys.is_gguf()) {
    c.names.up = "model.layers.#.mlp.c_fc";
    c.names.down = "model.layers.#.mlp.c_proj";
  }
  TRY(read_window(keys, c));
  for (LayerConfig& layer : c.layer) layer.sliding = c.window > 0;
  return c;
}

}  // namespace

extern const ModelDef kStarcoder2;
const ModelDef kStarcoder2 = {"StarCoder 2", "starcoder2", {"starcoder2"},
                              "3B, 7B, 15B", "starcoder2", read_config};

}  // namespace kvikk
