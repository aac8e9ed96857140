// GPT-NeoX and Pythia: layer norms and biases everywhere, rotation of a part of a head, and (nearly
// always) attention and MLP side by side, each behind a norm of its own:
//
//   x = x + attention(layer_norm1(x)) + Wdown gelu(Wup layer_norm2(x))
//
// q, k and v share a matrix, in Hugging Face's files interleaved by head.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr TensorNames kHfNames = {
    .embedding = "gpt_neox.embed_in",
    .output_norm = "gpt_neox.final_layer_norm",
    .head = "embed_out",
    .attention_norm = "gpt_neox.layers.#.input_layernorm",
    .mlp_norm = "gpt_neox.layers.#.post_attention_layernorm",
    .qkv = "gpt_neox.layers.#.attention.query_key_value",
    .qkv_rows = QkvRows::kByGroup,
    .o = "gpt_neox.layers.#.attention.dense",
    .up = "gpt_neox.layers.#.mlp.dense_h_to_4h",
    .down = "gpt_neox.layers.#.mlp.dense_4h_to_h",
    .ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
};

Result<ModelConfig> read_config(const ConfigKeys& original) {
  ConfigKeys keys = original;
  keys.set_aliases({{"partial_rotary_factor", "rotary_pct"}, {"rope_theta", "rotary_emb_base"}});
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.gated_mlp = false;
  defaults.rotary_part = 0.25f;
  defaults.activation = Activation::kGelu;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  TRY_ASSIGN(c.parallel, keys.flag({"use_parallel_residual", "use_parallel_residual"}, true));
  if (keys.is_gguf()) return c;
  c.names = kHfNames;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", true));
  c.output_bias = c.qkv_bias;
  c.mlp_bias = Presence::kYes;
  return c;
}

}  // namespace

extern const ModelDef kGptNeox;
const ModelDef kGptNeox = {
    "GPT-NeoX", "gptneox", {"gpt_neox"}, "GPT-NeoX 20B, Pythia", "gpt_neox, gpt_neox-serial",
    read_config};

}  // namespace kvikk
