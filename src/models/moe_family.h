#pragma once
// What the files of families with experts or latent attention share.

#include "models/family.h"

namespace kvikk {

// The keys of a mixture of experts into c.moe, which comes with the family's defaults; the usual
// names of the format. Every layer gets experts; the family takes them from dense ones.
Status read_moe(const ConfigKeys& keys, ModelConfig& c);

// The first layers are dense (leading_dense_block_count, first_k_dense_replace).
Status read_first_dense(const ConfigKeys& keys, ModelConfig& c);
// decoder_sparse_step and mlp_only_layers of Qwen.
Status read_sparse_step(const ConfigKeys& keys, ModelConfig& c);
// The shared experts of DeepSeek and GLM: so many of an expert's width.
Status read_shared_experts(const ConfigKeys& keys, ModelConfig& c);
// Sigmoid scores, a correction, groups: the router of DeepSeek-V3.
Status read_deepseek_router(const ConfigKeys& keys, ModelConfig& c);
// Layers that predict tokens further ahead: GGUF counts them among the others.
Status read_unused_layers(const ConfigKeys& keys, ModelConfig& c);

// A count that may be zero.
Result<size_t> read_count(const ConfigKeys& keys, Key key, size_t max, size_t fallback);

}  // namespace kvikk
