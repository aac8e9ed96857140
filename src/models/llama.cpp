// Llama and what shares its shape: Llama 1-3, Mistral, SmolLM2, TinyLlama and many fine-tunes.
//
//   x = embedding[token]
//   x = x + Wo attention(rope(Wq n), rope(Wk n), Wv n)      n = norm(x)
//   x = x + Wdown (silu(Wgate n) * Wup n)                   n = norm(x)
//   logits = Whead norm(x)                                  Whead = embedding if the file has none
//
// GGUF permutes the rows of q and k of this architecture, so neighbouring dimensions rotate. Llama
// 3 scales its rotary frequencies by the tensor rope_freqs.weight.

#include "models/registry.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const GgufFile& file) {
  TRY_ASSIGN(ModelConfig config, read_common_config(file, "llama"));
  config.rope_style = RopeStyle::kPairs;
  return config;
}

}  // namespace

extern const ModelDef kLlama;
const ModelDef kLlama = {"llama", "Llama 1-3, Mistral, SmolLM2 and their kin", read_config};

}  // namespace kvikk
