// OLMo 2 and 3. Llama's equations with the norms at the other end of the blocks:
//
//   x = x + norm(attention(x));  x = x + norm(mlp(x))
//
// All heads of q together are normalised before rotation, and all of k. OLMo 3 slides in three of
// four layers, whose rotation is not stretched; its GGUF files are of the architecture olmo2.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr size_t kPattern = 4;  // every fourth layer is a full one

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  name_norms_at_end(keys, c);
  name_qk_norms(keys, c);
  c.qk_norm = QkNorm::kAllHeads;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  if (keys.architecture() == "olmo2" && !keys.is_gguf()) return c;
  TRY(read_window(keys, c));
  if (c.window == 0) return c;
  TRY(read_sliding_pattern(keys, kPattern, c));
  if (!keys.is_object({"", "rope_parameters.sliding_attention"})) {
    c.rope_sliding = RopeConfig{};
    c.rope_sliding.base = c.rope.base;
  }
  TRY(check_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kOlmo2;
const ModelDef kOlmo2 = {"OLMo 2, 3",    "olmo2",    {"olmo2", "olmo3"}, "norms after the blocks",
                         "olmo2, olmo3", read_config};

}  // namespace kvikk
