// StableLM 3B, 2 1.6B and 2 12B: Llama's equations with layer norms, and rotation of the first
// quarter of a head. The 12B model runs attention and MLP side by side behind one norm, and has
// norms of q and k with weights for each head.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.rotary_part = 0.25f;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "use_qkv_bias", false));
  TRY_ASSIGN(c.parallel, keys.flag({"use_parallel_residual", "use_parallel_residual"}, false));
  if (c.parallel) c.names.mlp_norm = c.names.attention_norm;
  TRY_ASSIGN(const bool qk_norm, keys.flag({"", "qk_layernorm"}, keys.is_gguf()));
  if (!qk_norm) return c;
  name_qk_norms(keys, c);
  if (!keys.is_gguf()) {
    c.names.q_norm = "model.layers.#.self_attn.q_layernorm.norms.@";
    c.names.k_norm = "model.layers.#.self_attn.k_layernorm.norms.@";
  }
  c.qk_norm = QkNorm::kEachHead;
  c.qk_norm_optional = keys.is_gguf();
  return c;
}

}  // namespace

extern const ModelDef kStablelm;
const ModelDef kStablelm = {"StableLM",
                            "stablelm",
                            {"stablelm"},
                            "3B, 2 1.6B, 2 12B",
                            "stablelm, stablelm-parallel, stablelm-qk",
                            read_config};

}  // namespace kvikk
