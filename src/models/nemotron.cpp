// Nemotron 4 and Minitron: layer norms with 1 + weight (GGUF stores the sum), rotation of the first
// half of a head, and a plain MLP with relu(x)^2.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& original) {
  ConfigKeys keys = original;
  keys.set_aliases({{"layer_norm_eps", "norm_eps"}});
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.gated_mlp = false;
  defaults.rotary_part = 0.5f;
  defaults.activation = Activation::kRelu2;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  c.norm_weight_offset = keys.is_gguf() ? 0.0f : 1.0f;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  TRY_ASSIGN(c.mlp_bias, read_bias(keys, "mlp_bias", false));
  return c;
}

}  // namespace

extern const ModelDef kNemotron;
const ModelDef kNemotron = {"Nemotron", "nemotron", {"nemotron"}, "Nemotron 4, Minitron",
                            "nemotron", read_config};

}  // namespace kvikk
