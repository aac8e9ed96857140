// Seed-OSS: Llama's equations with biases on q, k and v. GGUF names the norm before the MLP after
// the attention that it follows.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", true));
  TRY_ASSIGN(c.output_bias, read_bias(keys, "attention_out_bias", false));
  TRY_ASSIGN(c.mlp_bias, read_bias(keys, "mlp_bias", false));
  if (keys.is_gguf()) c.names.mlp_norm = "blk.#.post_attention_norm";
  return c;
}

}  // namespace

extern const ModelDef kSeedOss;
const ModelDef kSeedOss = {"Seed-OSS", "seed_oss", {"seed_oss"}, "36B", "seed_oss", read_config};

}  // namespace kvikk
