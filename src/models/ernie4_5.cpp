// ERNIE 4.5 (dense): Llama's equations; neighbouring dimensions rotate in both formats.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  c.rope_style = RopeStyle::kPairs;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "use_bias", false));
  c.output_bias = c.mlp_bias = c.qkv_bias;
  return c;
}

}  // namespace

extern const ModelDef kErnie45;
const ModelDef kErnie45 = {"ERNIE 4.5",    "ernie4_5", {"ernie4_5"},
                           "dense models", "ernie4_5", read_config};

}  // namespace kvikk
