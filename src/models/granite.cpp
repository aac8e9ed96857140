// Granite 3: Llama's equations with four factors of its own: on the embedding, on scores, on what a
// block adds to the residual stream, and (as a divisor) on logits. GGUF permutes the rows of q and
// k, so neighbouring dimensions rotate.

#include "models/family.h"

namespace kvikk {

Status read_granite_factors(const ConfigKeys& keys, ModelConfig& c) {
  constexpr Key kAttention = {"attention.scale", "attention_multiplier"};
  TRY_ASSIGN(c.embedding_scale, keys.positive({"embedding_scale", "embedding_multiplier"}, 1.0f));
  TRY_ASSIGN(c.attention_scale, keys.positive(kAttention, c.attention_scale));
  TRY_ASSIGN(c.residual_scale, keys.positive({"residual_scale", "residual_multiplier"}, 1.0f));
  TRY_ASSIGN(const float divisor, keys.positive({"logit_scale", "logits_scaling"}, 1.0f));
  c.logit_scale = 1.0f / divisor;
  return ok_status();
}

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  if (keys.is_gguf()) c.rope_style = RopeStyle::kPairs;
  TRY(read_granite_factors(keys, c));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  TRY_ASSIGN(c.mlp_bias, read_bias(keys, "mlp_bias", false));
  return c;
}

}  // namespace

extern const ModelDef kGranite;
const ModelDef kGranite = {"Granite", "granite",  {"granite"}, "dense Granite 3 models",
                           "granite", read_config};

}  // namespace kvikk
