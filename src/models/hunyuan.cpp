// Hunyuan (dense): Llama's equations; each head of q and k is normalised after its rotation. Its
// rope type "dynamic" raises the base once and for all by alpha^(d / (d - 2)); GGUF stores the
// raised base.

#include <cmath>

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  c.qk_norm_after_rope = true;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  name_qk_norms(keys, c);
  if (keys.is_gguf()) return c;
  c.names.q_norm = "model.layers.#.self_attn.query_layernorm";
  c.names.k_norm = "model.layers.#.self_attn.key_layernorm";
  return c;
}

}  // namespace

extern const ModelDef kHunyuan;
const ModelDef kHunyuan = {"Hunyuan",      "hunyuan-dense",    {"hunyuan_v1_dense"},
                           "dense models", "hunyuan_v1_dense", read_config};

}  // namespace kvikk
