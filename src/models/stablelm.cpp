// StableLM 3B, 2 1.6B and 2 12B: Llama's equations with layer norms, and rotation of the first
// quarter of a head. The 12B model runs attention and MLP side by side behind one norm.

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
  TRY_ASSIGN(const bool qk_norm, keys.flag({"", "qk_layernorm"}, false));
  if (qk_norm) {
    return unsupported(keys.path() +
                       ": qk_layernorm is true; StableLM with norms of q and k is "
                       "not supported");
  }
  return c;
}

}  // namespace

extern const ModelDef kStablelm;
const ModelDef kStablelm = {
    "StableLM", "stablelm", {"stablelm"}, "3B, 2 1.6B", "stablelm, stablelm-parallel", read_config};

}  // namespace kvikk
