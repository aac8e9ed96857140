// Gemma 2. Beside Gemma's equations:
//
//   x = x + norm(attention(norm(x)));  x = x + norm(mlp(norm(x)))
//   a score s of a query and a key becomes cap * tanh(s / cap), a logit likewise
//   scores are scaled by query_pre_attn_scalar^-0.5
//
// Even layers slide over a window, odd ones see all.

#include <cmath>

#include "models/family.h"

namespace kvikk {

Status read_gemma2_extras(const ConfigKeys& keys, ModelConfig& c) {
  if (keys.is_gguf()) {
    c.names.post_attention_norm = "blk.#.post_attention_norm";
    c.names.post_mlp_norm = "blk.#.post_ffw_norm";
  } else {
    c.names.post_attention_norm = "model.layers.#.post_attention_layernorm";
    c.names.mlp_norm = "model.layers.#.pre_feedforward_layernorm";
    c.names.post_mlp_norm = "model.layers.#.post_feedforward_layernorm";
  }
  constexpr Key kScores = {"attn_logit_softcapping", "attn_logit_softcapping"};
  constexpr Key kLogits = {"final_logit_softcapping", "final_logit_softcapping"};
  constexpr Key kScalar = {"", "query_pre_attn_scalar"};
  if (keys.has(kScores)) {
    TRY_ASSIGN(c.attention_softcap, keys.positive(kScores));
  }
  if (keys.has(kLogits)) {
    TRY_ASSIGN(c.logit_softcap, keys.positive(kLogits));
  }
  if (keys.has(kScalar)) {
    TRY_ASSIGN(const float scalar, keys.positive(kScalar));
    c.attention_scale = 1.0f / std::sqrt(scalar);
  }
  return ok_status();
}

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_gemma_config(keys, {}));
  TRY(read_gemma2_extras(keys, c));
  TRY(read_window(keys, c));
  TRY_ASSIGN(const bool listed, read_layer_types(keys, c));
  for (size_t i = 0; i < c.layers && !listed; ++i) c.layer[i].sliding = i % 2 == 0;
  TRY(check_windows(keys, c));
  constexpr size_t kLayers27B = 46;  // the 27B model alone scales by the width of hidden / heads
  if (keys.is_gguf() && c.layers == kLayers27B) {
    c.attention_scale =
        1.0f / std::sqrt(static_cast<float>(c.hidden) / static_cast<float>(c.heads));
  }
  return c;
}

}  // namespace

extern const ModelDef kGemma2;
const ModelDef kGemma2 = {"Gemma 2", "gemma2",   {"gemma2"}, "softcaps on scores and logits",
                          "gemma2",  read_config};

}  // namespace kvikk
