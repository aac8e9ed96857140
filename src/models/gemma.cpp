// Gemma (1), and what its successors keep of it. Beside Llama's equations:
//
//   x = embedding[token] * sqrt(hidden)
//   a norm multiplies by 1 + weight (GGUF stores the sum)
//   gelu (tanh form) in place of silu; the head is the embedding

#include <cmath>

#include "models/family.h"

namespace kvikk {

Result<ModelConfig> read_gemma_config(const ConfigKeys& keys, const ModelConfig& defaults) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden));
  c.activation = Activation::kGeluTanh;  // whatever hidden_act says: early files say "gelu"
  constexpr Key kActivation = {"", "hidden_activation"};
  constexpr const char* kOnly = "gelu_pytorch_tanh";
  TRY_ASSIGN(const std::string activation, keys.text(kActivation, kOnly));
  if (activation != kOnly) return keys.wrong(kActivation, "'" + activation + "'", kOnly);
  c.norm_weight_offset = keys.is_gguf() ? 0.0f : 1.0f;
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  return c;
}

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) { return read_gemma_config(keys, {}); }

}  // namespace

extern const ModelDef kGemma;
const ModelDef kGemma = {"Gemma", "gemma", {"gemma"}, "2B, 7B and CodeGemma", "gemma", read_config};

}  // namespace kvikk
