// OLMoE: Llama's equations with experts; all of q (and of k) is normalised at once before rotation.
// Router: softmax over all experts.

#include "models/moe_family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  if (keys.has({"attention.clamp_kqv", "clip_qkv"})) {
    return unsupported(keys.path() + ": " + keys.name({"attention.clamp_kqv", "clip_qkv"}) +
                       " is set; clamped queries, keys and values are not supported");
  }
  name_qk_norms(keys, c);
  c.qk_norm = QkNorm::kAllHeads;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  TRY(read_moe(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kOlmoe;
const ModelDef kOlmoe = {"OLMoE", "olmoe", {"olmoe"}, "1B-7B", "olmoe", read_config};

}  // namespace kvikk
