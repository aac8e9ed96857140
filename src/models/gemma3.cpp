// Gemma 3 (text). Beside Llama's equations:
//
//   x = embedding[token] * sqrt(hidden)
//   q, k normalised per head before rotation
//   x = x + norm(attention(norm(x)));  x = x + norm(mlp(norm(x)))     (GGUF stores 1 + weight of
//   each norm) gelu (tanh form) in place of silu
//
// Of every six layers five slide over a window of tokens and rotate with the base 10,000; the sixth
// sees all and rotates with the file's base, its positions divided by the scaling factor.

#include <cmath>

#include "models/registry.h"

namespace kvikk {

namespace {

constexpr size_t kSlidingPattern = 6;  // every sixth layer is a full one; GGUF does not store it
constexpr float kSlidingRopeBase = 10000.0f;

Result<ModelConfig> read_config(const GgufFile& file) {
  TRY_ASSIGN(ModelConfig config, read_common_config(file, "gemma3"));
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  config.activation = Activation::kGeluTanh;
  config.qk_norm = true;
  config.post_norms = true;
  config.rope_sliding = RopeConfig{.base = kSlidingRopeBase, .linear_factor = 1.0f, .divisors = {}};
  if (file.has("gemma3.rope.freq_base_swa")) {
    TRY_ASSIGN(config.rope_sliding.base, file.get_float("gemma3.rope.freq_base_swa"));
  }
  if (file.has("gemma3.final_logit_softcapping")) {
    TRY_ASSIGN(config.logit_softcap, file.get_float("gemma3.final_logit_softcapping"));
  }
  TRY_ASSIGN(const uint64_t window, file.get_uint("gemma3.attention.sliding_window"));
  if (window < 1 || window > (uint64_t{1} << 31)) {
    return damaged(file.path() + ": gemma3.attention.sliding_window is " + std::to_string(window) +
                   "; it must be at least 1");
  }
  config.window = static_cast<size_t>(window);
  for (size_t i = 0; i < config.layers; ++i) {
    config.sliding[i] = i % kSlidingPattern != kSlidingPattern - 1;
  }
  constexpr size_t kLayers27B = 62;  // the 27B model alone scales by the width of hidden / heads
  if (config.layers == kLayers27B) {
    config.attention_scale =
        1.0f / std::sqrt(static_cast<float>(config.hidden) / static_cast<float>(config.heads));
  }
  return config;
}

}  // namespace

extern const ModelDef kGemma3;
const ModelDef kGemma3 = {"gemma3", "Gemma 3 (text)", read_config};

}  // namespace kvikk
