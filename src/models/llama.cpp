// Llama and what shares its shape: Llama 1-3, SmolLM2, TinyLlama and many fine-tunes.
//
//   x = embedding[token]
//   x = x + Wo attention(rope(Wq n), rope(Wk n), Wv n)      n = norm(x)
//   x = x + Wdown (silu(Wgate n) * Wup n)                   n = norm(x)
//   logits = Whead norm(x)                                  Whead = embedding if the file has none
//
// GGUF permutes the rows of q and k of this architecture, so neighbouring dimensions rotate, and
// keeps Llama 3's stretched frequencies in the tensor rope_freqs.weight.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  if (keys.is_gguf()) c.rope_style = RopeStyle::kPairs;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  TRY_ASSIGN(c.mlp_bias, read_bias(keys, "mlp_bias", false));
  if (keys.is_gguf() && keys.has({"expert_count", ""})) {
    TRY_ASSIGN(const size_t experts, keys.count({"expert_count", ""}, kExpertsMax));
    if (experts > 0) TRY(read_mixtral_experts(keys, c));  // Mixtral
  }
  return c;
}

}  // namespace

extern const ModelDef kLlama;
const ModelDef kLlama = {"Llama",
                         "llama",
                         {"llama"},
                         "Llama 1-3, SmolLM2, TinyLlama and their kin; linear, llama3, yarn rope",
                         "llama, llama-tied, llama-bias, llama-linear-rope, llama-rope-llama3, "
                         "llama-yarn, smollm-like",
                         read_config};

}  // namespace kvikk
