// Falcon 7B, 40B, 180B and 11B: layer norms, a plain MLP with gelu, attention and MLP side by side.
// The 7B model has one key-value head and one norm for both; 40B and 180B have key-value heads in
// groups ("new decoder architecture") and two norms; the 11B model has groups and one norm. q, k
// and v share a matrix, by group.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr TensorNames kHfNames = {
    .embedding = "transformer.word_embeddings",
    .output_norm = "transformer.ln_f",
    .head = "lm_head",
    .attention_norm = "transformer.h.#.input_layernorm",
    .mlp_norm = "transformer.h.#.input_layernorm",
    .qkv = "transformer.h.#.self_attention.query_key_value",
    .qkv_rows = QkvRows::kByGroup,
    .o = "transformer.h.#.self_attention.dense",
    .up = "transformer.h.#.mlp.dense_h_to_4h",
    .down = "transformer.h.#.mlp.dense_4h_to_h",
    .ignored = {".rotary_emb.inv_freq"},
};

Status name_hf(const ConfigKeys& keys, bool new_architecture, ModelConfig& c) {
  c.names = kHfNames;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "bias", false));
  c.output_bias = c.mlp_bias = c.qkv_bias;
  TRY_ASSIGN(const bool parallel, keys.flag({"", "parallel_attn"}, true));
  c.parallel = parallel || new_architecture;
  if (!c.parallel) c.names.mlp_norm = "transformer.h.#.post_attention_layernorm";
  constexpr size_t kTwoNorms = 2;
  TRY_ASSIGN(const size_t norms, keys.size({"", "num_ln_in_parallel_attn"}, kTwoNorms,
                                           new_architecture ? kTwoNorms : 1));
  if (new_architecture && norms == kTwoNorms) {
    c.names.attention_norm = "transformer.h.#.ln_attn";
    c.names.mlp_norm = "transformer.h.#.ln_mlp";
  }
  return ok_status();
}

Result<ModelConfig> read_config(const ConfigKeys& original) {
  ConfigKeys keys = original;
  TRY_ASSIGN(const bool new_architecture, keys.flag({"", "new_decoder_architecture"}, false));
  TRY_ASSIGN(const bool multi_query, keys.flag({"", "multi_query"}, true));
  TRY_ASSIGN(const bool alibi, keys.flag({"", "alibi"}, false));
  if (alibi) return unsupported(keys.path() + ": alibi true is not supported; only rotation is");
  std::vector<ConfigKeys::Alias> aliases = {{"num_hidden_layers", "n_layer"},
                                            {"num_attention_heads", "n_head"},
                                            {"intermediate_size", "ffn_hidden_size"},
                                            {"layer_norm_eps", "layer_norm_epsilon"},
                                            {"hidden_act", "activation"}};
  if (new_architecture) aliases.push_back({"num_key_value_heads", "num_kv_heads"});
  keys.set_aliases(std::move(aliases));
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-5f;
  defaults.gated_mlp = false;
  defaults.activation = Activation::kGelu;
  defaults.context = 2048;
  if (!keys.is_gguf() && !new_architecture && multi_query) defaults.kv_heads = 1;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  if (!keys.is_gguf()) {
    TRY(name_hf(keys, new_architecture, c));
    return c;
  }
  c.parallel = true;
  c.names.mlp_norm = c.names.attention_norm;
  c.names.own_attention_norm = "blk.#.attn_norm_2";
  return c;
}

}  // namespace

extern const ModelDef kFalcon;
const ModelDef kFalcon = {
    "Falcon",   "falcon", {"falcon"}, "7B, 40B, 180B, 11B; not alibi (RW)", "falcon, falcon-new",
    read_config};

}  // namespace kvikk
