// Qwen 2 and 3 with experts: the attention of the dense models. Router: softmax over all experts;
// the weights of the chosen ones are renormalised if the file says so (Qwen 3: they are). Some
// layers may be dense. Qwen 2 adds a shared expert, weighted by the sigmoid of a product with the
// row.

#include "models/moe_family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_qwen2(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  TRY(read_moe(keys, c));
  TRY(read_sparse_step(keys, c));
  constexpr Key kShared = {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"};
  const auto fallback = keys.is_gguf() ? std::optional(c.feed_forward) : std::nullopt;
  TRY_ASSIGN(c.moe.shared_width, keys.size(kShared, 1 << 20, fallback));
  if (keys.is_gguf()) {
    c.moe.names.shared_mix = "blk.#.ffn_gate_inp_shexp";
    return c;
  }
  c.moe.names.shared_gate = "model.layers.#.mlp.shared_expert.gate_proj";
  c.moe.names.shared_up = "model.layers.#.mlp.shared_expert.up_proj";
  c.moe.names.shared_down = "model.layers.#.mlp.shared_expert.down_proj";
  c.moe.names.shared_mix = "model.layers.#.mlp.shared_expert_gate";
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "qkv_bias", true));
  TRY(read_qwen_windows(keys, c));
  return c;
}

Result<ModelConfig> read_qwen3(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  name_qk_norms(keys, c);
  c.moe.renormalize = keys.is_gguf();
  TRY(read_moe(keys, c));
  TRY(read_sparse_step(keys, c));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", false));
  c.output_bias = c.qkv_bias;
  if (!keys.is_gguf()) TRY(read_qwen_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kQwen2Moe;
const ModelDef kQwen2Moe = {"Qwen 2 MoE",  "qwen2moe",
                            {"qwen2_moe"}, "Qwen 1.5 and 2 with experts and a shared expert",
                            "qwen2_moe",   read_qwen2};

extern const ModelDef kQwen3Moe;
const ModelDef kQwen3Moe = {
    "Qwen 3 MoE", "qwen3moe", {"qwen3_moe"}, "30B-A3B, 235B-A22B", "qwen3_moe, qwen3_moe-nonorm",
    read_qwen3};

}  // namespace kvikk
