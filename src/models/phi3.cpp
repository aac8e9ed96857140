// Phi 3, 3.5 and 4 (mini and medium): Llama's equations with q, k, v in one matrix and gate, up in
// another. The long-context versions stretch their rotary frequencies by tables (longrope), and
// some rotate only part of a head.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  c.names.q = c.names.k = c.names.v = nullptr;
  c.names.gate = c.names.up = nullptr;
  c.names.qkv = keys.is_gguf() ? "blk.#.attn_qkv" : "model.layers.#.self_attn.qkv_proj";
  c.names.gate_up = keys.is_gguf() ? "blk.#.ffn_up" : "model.layers.#.mlp.gate_up_proj";
  TRY(read_window(keys, c));
  for (LayerConfig& layer : c.layer) layer.sliding = c.window > 0;
  return c;
}

}  // namespace

extern const ModelDef kPhi3;
const ModelDef kPhi3 = {
    "Phi 3", "phi3", {"phi3"}, "Phi 3, 3.5 and 4; longrope", "phi3, phi3-longrope", read_config};

}  // namespace kvikk
