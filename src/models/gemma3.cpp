// Gemma 3 (text). Beside Llama's equations:
//
//   x = embedding[token] * sqrt(hidden)
//   q, k normalised per head before rotation
//   x = x + norm(attention(norm(x)));  x = x + norm(mlp(norm(x)))     a norm multiplies by 1 +
//   weight gelu (tanh form) in place of silu
//
// Of every six layers five slide over a window of tokens and rotate with the base 10,000; the sixth
// sees all and rotates with the file's base, its positions divided by the scaling factor. GGUF
// stores the sum 1 + weight.

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/family.h"

namespace kvikk {

namespace {

constexpr size_t kSlidingPattern = 6;  // every sixth layer is a full one; GGUF does not store it

// Sliding layers keep the original base and are not stretched.
Status read_sliding_rope(const ConfigKeys& keys, ModelConfig& c) {
  if (keys.is_object({"", "rope_parameters.sliding_attention"})) return ok_status();
  c.rope_sliding = RopeConfig{};
  TRY_ASSIGN(c.rope_sliding.base,
             keys.positive({"rope.freq_base_swa", "rope_local_base_freq"}, 10000.0f));
  return ok_status();
}

// What the 4B model has.
void set_usual_sizes(ConfigKeys& keys) {
  keys.set_defaults({{"vocab_size", 262208u},
                     {"num_attention_heads", 8u},
                     {"num_key_value_heads", 4u},
                     {"head_dim", 256u},
                     {"rms_norm_eps", 1e-6},
                     {"max_position_embeddings", 131072u},
                     {"query_pre_attn_scalar", 256u},
                     {"tie_word_embeddings", true}});
}

Result<ModelConfig> read_config(const ConfigKeys& given) {
  ConfigKeys keys = given;
  if (keys.is_nested()) set_usual_sizes(keys);
  ModelConfig defaults;
  defaults.rope.base = 1000000.0f;
  TRY_ASSIGN(ModelConfig c, read_gemma_config(keys, defaults));
  TRY(read_gemma2_extras(keys, c));
  c.attention_softcap = 0.0f;  // files may say one; the original does not apply it
  name_qk_norms(keys, c);
  TRY(read_sliding_rope(keys, c));
  TRY(read_window(keys, c));
  TRY(read_sliding_pattern(keys, kSlidingPattern, c));
  TRY(check_windows(keys, c));
  constexpr size_t kLayers27B = 62;  // the 27B model alone scales by the width of hidden / heads
  if (keys.is_gguf() && c.layers == kLayers27B) {
    c.attention_scale =
        1.0f / std::sqrt(static_cast<float>(c.hidden) / static_cast<float>(c.heads));
  }
  return c;
}

}  // namespace

extern const ModelDef kGemma3;
const ModelDef kGemma3 = {"Gemma 3",
                          "gemma3",
                          {"gemma3_text"},
                          "all sizes; of models that see images the text",
                          "gemma3_text, gemma3",
                          read_config};

}  // namespace kvikk
