#pragma once
// What the files of families share: reading the keys that most have, and the small variations that
// several have.

#include "models/registry.h"

namespace kvikk {

// The part of a configuration that all share, and the names of the format. What the file does not
// say comes from `defaults`.
Result<ModelConfig> read_common_config(const ConfigKeys& keys, const ModelConfig& defaults = {});

// Whether config.json announces a bias; in GGUF it is where its tensor is.
Result<Presence> read_bias(const ConfigKeys& keys, std::string_view json_key, bool fallback);

// sliding_window, if it is there, into config.window.
Status read_window(const ConfigKeys& keys, ModelConfig& config);
// layer_types of config.json, or a GGUF file's list, into config.layer; false if there is none.
Result<bool> read_layer_types(const ConfigKeys& keys, ModelConfig& config);
// The same; without a list all layers slide but every n-th: what the file says, or `usual`.
Status read_sliding_pattern(const ConfigKeys& keys, size_t usual, ModelConfig& config);
// Last word about windows: sliding layers need one, and without such layers there is none.
Status check_windows(const ConfigKeys& keys, ModelConfig& config);

// Windows as Qwen 2 and 3 declare them: only with use_sliding_window.
Status read_qwen_windows(const ConfigKeys& keys, ModelConfig& config);

// What all Gemmas have: scaled embeddings, norms of 1 + weight, gelu; names of the format.
Result<ModelConfig> read_gemma_config(const ConfigKeys& keys, const ModelConfig& defaults);
// Gemma 2 and 3: norms before and after both blocks, softcaps, query_pre_attn_scalar.
Status read_gemma2_extras(const ConfigKeys& keys, ModelConfig& config);

// Granite's factors on embedding, scores, residual stream and logits.
Status read_granite_factors(const ConfigKeys& keys, ModelConfig& config);

// Mixtral's experts, which GGUF files of architecture llama may have too.
Status read_mixtral_experts(const ConfigKeys& keys, ModelConfig& config);

// Norms of q and k, under the usual names.
void name_qk_norms(const ConfigKeys& keys, ModelConfig& config);
// The outputs of both blocks have norms, their inputs have none.
void name_norms_at_end(const ConfigKeys& keys, ModelConfig& config);

}  // namespace kvikk
