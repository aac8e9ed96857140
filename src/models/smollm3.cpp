// SmolLM3: Llama's equations; every fourth layer does not rotate q and k (NoPE). GGUF permutes the
// rows of q and k, so neighbouring dimensions rotate, and does not say which layers those are.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr size_t kNoRopeInterval = 4;

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  if (keys.is_gguf()) c.rope_style = RopeStyle::kPairs;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  TRY_ASSIGN(c.mlp_bias, read_bias(keys, "mlp_bias", false));
  constexpr Key kNoRope = {"", "no_rope_layers"};  // 0: no rotation
  if (keys.has(kNoRope)) {
    TRY_ASSIGN(const std::vector<int64_t> rotates, keys.integers(kNoRope, c.layers));
    for (size_t i = 0; i < c.layers; ++i) c.layer[i].rotates = rotates[i] != 0;
  } else {
    TRY_ASSIGN(const size_t interval,
               keys.size({"", "no_rope_layer_interval"}, 1 << 16, kNoRopeInterval));
    for (size_t i = 0; i < c.layers; ++i) c.layer[i].rotates = (i + 1) % interval != 0;
  }
  if (!keys.is_gguf()) TRY(read_qwen_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kSmolLm3;
const ModelDef kSmolLm3 = {"SmolLM3",   "smollm3",
                           {"smollm3"}, "every fourth layer without rotation",
                           "smollm3",   read_config};

}  // namespace kvikk
