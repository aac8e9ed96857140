// Command R and Command R7B (Cohere). One norm feeds attention and MLP, which run side by side:
//
//   n = layer_norm(x)          weights only, no bias
//   x = x + attention(n) + Wdown (silu(Wgate n) * Wup n)
//   logits = logit_scale * Wembedding layer_norm(x)
//
// Neighbouring dimensions rotate in both formats. Command R+ normalises each head of q and k with
// weights of its own. The second version (cohere2) slides in three of four layers; the fourth sees
// all and does not rotate.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr size_t kPattern = 4;  // every fourth layer is a full one

Result<ModelConfig> read_shared(const ConfigKeys& keys) {
  ModelConfig defaults;
  defaults.norm = NormKind::kLayer;
  defaults.norm_epsilon = 1e-5f;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  c.parallel = true;
  c.rope_style = RopeStyle::kPairs;
  c.names.mlp_norm = c.names.attention_norm;
  if (!keys.has({"", "tie_word_embeddings"}) && !keys.is_gguf()) c.tied = Presence::kYes;
  TRY_ASSIGN(c.logit_scale, keys.positive({"logit_scale", "logit_scale"}, 0.0625f));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  return c;
}

Result<ModelConfig> read_cohere(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_shared(keys));
  TRY_ASSIGN(const bool qk_norm, keys.flag({"", "use_qk_norm"}, keys.is_gguf()));
  if (!qk_norm) return c;
  name_qk_norms(keys, c);
  c.qk_norm = QkNorm::kEachHead;
  c.qk_norm_optional = keys.is_gguf();  // which does not say that Command R+ has them
  return c;
}

Result<ModelConfig> read_cohere2(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_shared(keys));
  TRY(read_window(keys, c));
  TRY(read_sliding_pattern(keys, kPattern, c));
  for (LayerConfig& layer : c.layer) layer.rotates = layer.sliding;
  TRY(check_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kCohere, kCohere2;
const ModelDef kCohere = {"Command R",         "command-r", {"cohere"}, "Command R, R+ and Aya 23",
                          "cohere, cohere-qk", read_cohere};
const ModelDef kCohere2 = {"Command R7B", "cohere2",   {"cohere2"}, "Command R7B, Command A",
                           "cohere2",     read_cohere2};

}  // namespace kvikk
