// Phi 1, 1.5 and 2: one layer norm feeds attention and a plain MLP with gelu (tanh form), which run
// side by side; biases everywhere, also on the logits; a part of each head rotates.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.gated_mlp = false;
  defaults.activation = Activation::kGeluTanh;
  defaults.parallel = true;
  defaults.rotary_part = 0.5f;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  c.names.mlp_norm = c.names.attention_norm;
  TRY_ASSIGN(const bool qk_norm, keys.flag({"", "qk_layernorm"}, false));
  if (keys.is_gguf()) return c;
  if (qk_norm) {
    c.names.q_norm = "model.layers.#.self_attn.q_layernorm";
    c.names.k_norm = "model.layers.#.self_attn.k_layernorm";
  }
  c.qkv_bias = c.output_bias = c.mlp_bias = c.head_bias = Presence::kYes;
  c.names.o = "model.layers.#.self_attn.dense";
  c.names.up = "model.layers.#.mlp.fc1";
  c.names.down = "model.layers.#.mlp.fc2";
  c.names.output_norm = "model.final_layernorm";
  return c;
}

}  // namespace

extern const ModelDef kPhi;
const ModelDef kPhi = {"Phi", "phi2", {"phi"}, "Phi 1, 1.5 and 2", "phi", read_config};

}  // namespace kvikk
