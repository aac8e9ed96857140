// GPT-2 (Radford et al. 2019):
//
//   x = embedding[token] + positions[position]
//   x = x + Wo attention(Wqkv layer_norm(x));  x = x + Wdown gelu(Wup layer_norm(x))
//   logits = Wembedding layer_norm(x)
//
// Biases everywhere. Hugging Face stores the matrices transposed, and older files a causal mask
// beside each attention.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr TensorNames kHfNames = {
    .embedding = "transformer.wte",
    .positions = "transformer.wpe",
    .output_norm = "transformer.ln_f",
    .head = "lm_head",
    .attention_norm = "transformer.h.#.ln_1",
    .mlp_norm = "transformer.h.#.ln_2",
    .qkv = "transformer.h.#.attn.c_attn",
    .o = "transformer.h.#.attn.c_proj",
    .up = "transformer.h.#.mlp.c_fc",
    .down = "transformer.h.#.mlp.c_proj",
    .transposed = true,
    .ignored = {".attn.bias", ".attn.masked_bias"},
};

Result<ModelConfig> read_config(const ConfigKeys& original) {
  ConfigKeys keys = original;
  keys.set_aliases({{"hidden_size", "n_embd"},
                    {"num_hidden_layers", "n_layer"},
                    {"num_attention_heads", "n_head"},
                    {"max_position_embeddings", "n_positions"},
                    {"intermediate_size", "n_inner"},
                    {"layer_norm_eps", "layer_norm_epsilon"},
                    {"hidden_act", "activation_function"}});
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.gated_mlp = false;
  defaults.activation = Activation::kGeluTanh;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  for (LayerConfig& layer : c.layer) layer.rotates = false;
  c.learned_positions = c.context;
  TRY_ASSIGN(const bool by_layer, keys.flag({"", "scale_attn_by_inverse_layer_idx"}, false));
  TRY_ASSIGN(const bool scaled, keys.flag({"", "scale_attn_weights"}, true));
  if (by_layer || !scaled) {
    return unsupported(keys.path() + ": scale_attn_by_inverse_layer_idx true and " +
                       "scale_attn_weights false are not supported");
  }
  if (keys.is_gguf()) {
    c.names.positions = "position_embd";
    return c;
  }
  c.names = kHfNames;
  c.qkv_bias = c.output_bias = c.mlp_bias = Presence::kYes;
  return c;
}

}  // namespace

extern const ModelDef kGpt2;
const ModelDef kGpt2 = {"GPT-2", "gpt2",     {"gpt2"}, "all sizes; learned positions",
                        "gpt2",  read_config};

}  // namespace kvikk
