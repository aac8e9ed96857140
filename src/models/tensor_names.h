#pragma once
// Where a file keeps the weights of each role. A family starts from the table of the file's format
// and changes what differs. A name has no ".weight" or ".bias" at its end; # stands for the layer's
// number. A role without a name does not exist in the family.

#include <array>

namespace kvikk {

// How one tensor holds q, k and v.
enum class QkvRows {
  kInOrder,  // all of q, all of k, all of v
  kByGroup,  // for each KV head: its query heads, its key, its value
};

struct TensorNames {
  const char* embedding = nullptr;
  const char* positions = nullptr;    // table of learned positions
  const char* token_types = nullptr;  // table of parts of a text; all tokens are of part 0
  const char* embedding_norm = nullptr;
  const char* output_norm = nullptr;
  const char* head = nullptr;  // none: an encoder

  const char* attention_norm = nullptr;
  const char* own_attention_norm = nullptr;   // in its place, where the file has it
  const char* post_attention_norm = nullptr;  // of the attention's output
  const char* mlp_norm = nullptr;
  const char* post_mlp_norm = nullptr;

  const char* q = nullptr;
  const char* k = nullptr;
  const char* v = nullptr;
  const char* qkv = nullptr;  // in place of q, k and v if the file has it
  QkvRows qkv_rows = QkvRows::kInOrder;
  const char* o = nullptr;
  const char* q_norm = nullptr;
  const char* k_norm = nullptr;
  const char* sinks = nullptr;  // the whole name; [heads]: a score that joins each softmax

  const char* gate = nullptr;
  const char* up = nullptr;
  const char* gate_up = nullptr;  // rows of gate, then of up; in place of both if the file has it
  const char* down = nullptr;

  bool transposed = false;  // matrices are stored [inputs, outputs]
  // Tensors that files hold and no forward pass needs, by the end of their names, or by a module
  // at their beginning ("cls.").
  std::array<const char*, 6> ignored = {};
};

inline constexpr TensorNames kGgufNames = {
    .embedding = "token_embd",
    .output_norm = "output_norm",
    .head = "output",
    .attention_norm = "blk.#.attn_norm",
    .mlp_norm = "blk.#.ffn_norm",
    .q = "blk.#.attn_q",
    .k = "blk.#.attn_k",
    .v = "blk.#.attn_v",
    .qkv = "blk.#.attn_qkv",
    .o = "blk.#.attn_output",
    .gate = "blk.#.ffn_gate",
    .up = "blk.#.ffn_up",
    .down = "blk.#.ffn_down",
};

inline constexpr TensorNames kHuggingFaceNames = {
    .embedding = "model.embed_tokens",
    .output_norm = "model.norm",
    .head = "lm_head",
    .attention_norm = "model.layers.#.input_layernorm",
    .mlp_norm = "model.layers.#.post_attention_layernorm",
    .q = "model.layers.#.self_attn.q_proj",
    .k = "model.layers.#.self_attn.k_proj",
    .v = "model.layers.#.self_attn.v_proj",
    .o = "model.layers.#.self_attn.o_proj",
    .gate = "model.layers.#.mlp.gate_proj",
    .up = "model.layers.#.mlp.up_proj",
    .down = "model.layers.#.mlp.down_proj",
    .ignored = {".rotary_emb.inv_freq"},
};

}  // namespace kvikk
