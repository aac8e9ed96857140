// GLM 4 (0414) and its predecessor "glm": neighbouring dimensions of the first half of a head
// rotate, q, k and v have biases, gate and up share a matrix. GLM 4 (0414) normalises the output of
// each block too.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  ModelConfig defaults;
  defaults.rotary_part = 0.5f;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  c.rope_style = RopeStyle::kPairs;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", true));
  c.names.gate = c.names.up = nullptr;
  if (keys.is_gguf()) {
    c.names.gate_up = "blk.#.ffn_up";
    c.names.post_attention_norm = "blk.#.post_attention_norm";
    c.names.post_mlp_norm = "blk.#.post_ffw_norm";
    return c;
  }
  c.names.gate_up = "model.layers.#.mlp.gate_up_proj";
  if (keys.architecture() == "glm4") {
    c.names.post_attention_norm = "model.layers.#.post_self_attn_layernorm";
    c.names.post_mlp_norm = "model.layers.#.post_mlp_layernorm";
  }
  return c;
}

}  // namespace

extern const ModelDef kGlm4;
const ModelDef kGlm4 = {"GLM 4",     "glm4",     {"glm4", "glm"}, "dense GLM 4 models",
                        "glm4, glm", read_config};

}  // namespace kvikk
