// OLMo 2. Llama's equations with the norms at the other end of the blocks:
//
//   x = x + norm(attention(x));  x = x + norm(mlp(x))
//
// All heads of q together are normalised before rotation, and all of k.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  name_norms_at_end(keys, c);
  name_qk_norms(keys, c);
  c.qk_norm = QkNorm::kAllHeads;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  return c;
}

}  // namespace

extern const ModelDef kOlmo2;
const ModelDef kOlmo2 = {"OLMo 2", "olmo2",    {"olmo2"}, "norms after the blocks",
                         "olmo2",  read_config};

}  // namespace kvikk
