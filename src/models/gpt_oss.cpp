// gpt-oss. Every second layer slides, beginning with the first; each head has a sink, a score that
// takes its share of the softmax and adds no value; all matrices have biases. Experts clamp gate
// and up and compute (up + 1) gate sigmoid(1.702 gate); the router's softmax runs over the chosen.

#include "models/moe_family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  TRY_ASSIGN(c.qkv_bias, read_bias(keys, "attention_bias", true));
  c.output_bias = c.qkv_bias;
  TRY(read_window(keys, c));
  TRY_ASSIGN(const bool listed, read_layer_types(keys, c));
  for (size_t i = 0; i < c.layers && !listed; ++i) c.layer[i].sliding = i % 2 == 0;
  TRY(check_windows(keys, c));
  c.moe.renormalize = true;
  TRY(read_moe(keys, c));
  c.moe.router_bias = true;
  c.moe.expert_bias = true;
  TRY_ASSIGN(c.moe.clamp, keys.positive({"", "swiglu_limit"}, 7.0f));
  if (keys.is_gguf()) {
    // The converter leaves out that the range of pairs between the two rotations is not rounded.
    c.rope.truncate = c.rope_sliding.truncate = false;
    c.names.sinks = "blk.#.attn_sinks.weight";
    c.names.mlp_norm = "blk.#.post_attention_norm";
    return c;
  }
  c.names.sinks = "model.layers.#.self_attn.sinks";
  c.moe.names.router = "model.layers.#.mlp.router";
  c.moe.names.gate_up = "model.layers.#.mlp.experts.gate_up_proj";
  c.moe.names.down = "model.layers.#.mlp.experts.down_proj";
  c.moe.fused = MoeConfig::Fused::kInterleavedColumns;
  return c;
}

}  // namespace

extern const ModelDef kGptOss;
const ModelDef kGptOss = {"gpt-oss", "gpt-oss", {"gpt_oss"}, "20B, 120B", "gpt_oss", read_config};

}  // namespace kvikk
