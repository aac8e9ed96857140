// DeepSeek-V2 and V3 (also R1, Kimi K2, Moonlight): latent attention (mla.h), first layers dense,
// then experts with shared ones. V2 scores experts by a softmax, V3 by sigmoids with a correction.
// Neighbouring dimensions rotate. Where yarn stretches the context, scores are scaled by the square
// of its magnitude for mscale_all_dim.

#include <cmath>

#include "kv/page_pool.h"
#include "models/moe_family.h"

namespace kvikk {

namespace {

constexpr uint64_t kRankMax = 1 << 16;

void name_latent(const ConfigKeys& keys, ModelConfig& c) {
  MlaNames& n = c.mla.names;
  if (keys.is_gguf()) {
    n = {"blk.#.attn_q_a",       "blk.#.attn_q_a_norm", "blk.#.attn_q_b", "blk.#.attn_kv_a_mqa",
         "blk.#.attn_kv_a_norm", "blk.#.attn_kv_b",     "blk.#.attn_k_b", "blk.#.attn_v_b"};
    return;
  }
  n.q_down = "model.layers.#.self_attn.q_a_proj";
  n.q_norm = "model.layers.#.self_attn.q_a_layernorm";
  n.q_up = "model.layers.#.self_attn.q_b_proj";
  n.kv_down = "model.layers.#.self_attn.kv_a_proj_with_mqa";
  n.kv_norm = "model.layers.#.self_attn.kv_a_layernorm";
  n.kv_up = "model.layers.#.self_attn.kv_b_proj";
}

// Head sizes: newer GGUF files keep those of the latent in the usual keys.
Status read_head_sizes(const ConfigKeys& keys, MlaConfig& m) {
  if (!keys.is_gguf()) {
    TRY_ASSIGN(m.plain, keys.size({"", "qk_nope_head_dim"}, kKvDimMax));
    TRY_ASSIGN(m.value, keys.size({"", "v_head_dim"}, kKvDimMax));
    return ok_status();
  }
  const bool newer = keys.has({"attention.key_length_mla", ""});
  const Key key = {newer ? "attention.key_length_mla" : "attention.key_length", ""};
  TRY_ASSIGN(const size_t whole, keys.size(key, kKvDimMax));
  if (whole <= m.rotary) {
    return keys.wrong(key, std::to_string(whole),
                      "above the " + std::to_string(m.rotary) + " rotating dimensions");
  }
  m.plain = whole - m.rotary;
  TRY_ASSIGN(
      m.value,
      keys.size({newer ? "attention.value_length_mla" : "attention.value_length", ""}, kKvDimMax));
  return ok_status();
}

Status read_latent(const ConfigKeys& keys, ModelConfig& c) {
  MlaConfig& m = c.mla;
  constexpr Key kRank = {"attention.kv_lora_rank", "kv_lora_rank"};
  constexpr Key kQueryRank = {"attention.q_lora_rank", "q_lora_rank"};
  TRY_ASSIGN(m.rank, keys.size(kRank, kKvDimMax));
  if (keys.has(kQueryRank)) {
    TRY_ASSIGN(m.q_rank, read_count(keys, kQueryRank, kRankMax, 0));
  }
  m.rotary = c.rotary;
  TRY(read_head_sizes(keys, m));
  if (m.rank + m.rotary > kKvDimMax) {
    return keys.wrong(kRank, std::to_string(m.rank),
                      "with the " + std::to_string(m.rotary) + " rotating dimensions at most " +
                          std::to_string(kKvDimMax));
  }
  name_latent(keys, c);
  c.kv_heads = 1;
  c.head_dim = m.rank + m.rotary;
  c.value_dim = m.rank;
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(m.plain + m.rotary));
  return ok_status();
}

Status scale_scores(const ConfigKeys& keys, ModelConfig& c) {
  if (c.rope.scaling != RopeConfig::Scaling::kYarn) return ok_status();
  float multiplier = 0.0f;
  if (keys.is_gguf()) {
    TRY_ASSIGN(multiplier, keys.number({"rope.scaling.yarn_log_multiplier", ""}, 0.0f));
    c.rope.attention_factor = c.rope_sliding.attention_factor = 1.0f;
  } else {
    const char* key = keys.has({"", "rope_parameters.mscale_all_dim"})
                          ? "rope_parameters.mscale_all_dim"
                          : "rope_scaling.mscale_all_dim";
    TRY_ASSIGN(const float all, keys.number({"", key}, 0.0f));
    multiplier = 0.1f * all;
  }
  const float magnitude =
      c.rope.factor <= 1.0f ? 1.0f : multiplier * std::log(c.rope.factor) + 1.0f;
  c.attention_scale *= magnitude * magnitude;
  return ok_status();
}

// Groups count in V2 only where its method says so.
Status read_v2_router(const ConfigKeys& keys, ModelConfig& c) {
  TRY_ASSIGN(const std::string method, keys.text({"", "topk_method"}, "greedy"));
  TRY(read_deepseek_router(keys, c));
  c.moe.score = MoeConfig::Score::kSoftmax;
  c.moe.group_score = MoeConfig::GroupScore::kBest;
  c.moe.names.correction = nullptr;
  if (!keys.is_gguf()) c.moe.renormalize = false;  // the original ignores norm_topk_prob
  if (method == "greedy" && !keys.is_gguf()) c.moe.groups = c.moe.groups_chosen = 1;
  if (method == "greedy" || method == "group_limited_greedy") return ok_status();
  return unsupported(keys.path() + ": topk_method '" + method +
                     "' is not supported. Supported: greedy, group_limited_greedy.");
}

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  c.rope_style = RopeStyle::kPairs;
  if (!keys.is_gguf()) {
    constexpr Key kRotary = {"", "qk_rope_head_dim"};
    TRY_ASSIGN(c.rotary, keys.size(kRotary, kKvDimMax));
    if (c.rotary % 2 != 0) return keys.wrong(kRotary, std::to_string(c.rotary), "an even number");
  }
  TRY_ASSIGN(const bool biased, keys.flag({"", "attention_bias"}, false));
  if (biased) {
    return unsupported(keys.path() +
                       ": attention_bias is true; biases of latent attention are "
                       "not supported");
  }
  if (c.rope.scaling == RopeConfig::Scaling::kLongRope) {  // its factors count other dimensions
    return unsupported(keys.path() + ": longrope is not supported with latent attention");
  }
  TRY(read_unused_layers(keys, c));
  TRY(read_latent(keys, c));
  TRY(scale_scores(keys, c));
  constexpr uint64_t kSigmoid = 2;
  TRY_ASSIGN(const size_t gating, keys.size({"expert_gating_func", ""}, 3, size_t{1}));
  const bool v3 = keys.is_gguf() ? gating == kSigmoid : keys.architecture() != "deepseek_v2";
  c.moe.renormalize = v3;
  TRY(read_moe(keys, c));
  TRY(read_first_dense(keys, c));
  TRY(read_shared_experts(keys, c));
  if (v3) {
    TRY(read_deepseek_router(keys, c));
  } else {
    TRY(read_v2_router(keys, c));
  }
  return c;
}

}  // namespace

extern const ModelDef kDeepSeek;
const ModelDef kDeepSeek = {"DeepSeek",
                            "deepseek2",
                            {"deepseek_v3", "deepseek_v2", "kimi_k2"},
                            "V2, V2-Lite, V3, R1, Kimi K2: latent attention, experts",
                            "deepseek_v3, deepseek_v2, deepseek_v2-groups",
                            read_config};

}  // namespace kvikk
