// GLM 4.5 and 4.6: half of each head rotates, q, k and v have biases, q and k may have norms. The
// first layers are dense; the others route as DeepSeek-V3 does. The layers behind the last one
// predict tokens further ahead and are not used.

#include "models/moe_family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", true));
  TRY_ASSIGN(const bool norms, keys.flag({"", "use_qk_norm"}, keys.is_gguf()));
  if (norms) name_qk_norms(keys, c);
  c.qk_norm_optional = keys.is_gguf();
  if (keys.is_gguf()) c.names.mlp_norm = "blk.#.post_attention_norm";
  TRY(read_unused_layers(keys, c));
  c.moe.renormalize = true;
  TRY(read_moe(keys, c));
  TRY(read_first_dense(keys, c));
  TRY(read_shared_experts(keys, c));
  TRY(read_deepseek_router(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kGlm4Moe;
const ModelDef kGlm4Moe = {"GLM 4 MoE", "glm4moe",  {"glm4_moe"}, "GLM 4.5, 4.5-Air, 4.6",
                           "glm4_moe",  read_config};

}  // namespace kvikk
