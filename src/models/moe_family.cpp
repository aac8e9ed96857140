#include "models/moe_family.h"

namespace kvikk {

namespace {

constexpr uint64_t kWidthMax = 1 << 20;

constexpr MoeNames kGgufMoeNames = {
    .router = "blk.#.ffn_gate_inp",
    .gate = "blk.#.ffn_gate_exps",
    .up = "blk.#.ffn_up_exps",
    .down = "blk.#.ffn_down_exps",
    .shared_gate = "blk.#.ffn_gate_shexp",
    .shared_up = "blk.#.ffn_up_shexp",
    .shared_down = "blk.#.ffn_down_shexp",
};

constexpr MoeNames kHuggingFaceMoeNames = {
    .router = "model.layers.#.mlp.gate",
    .gate = "model.layers.#.mlp.experts.@.gate_proj",
    .up = "model.layers.#.mlp.experts.@.up_proj",
    .down = "model.layers.#.mlp.experts.@.down_proj",
    .shared_gate = "model.layers.#.mlp.shared_experts.gate_proj",
    .shared_up = "model.layers.#.mlp.shared_experts.up_proj",
    .shared_down = "model.layers.#.mlp.shared_experts.down_proj",
};

constexpr Key kChosen = {"expert_used_count", "num_experts_per_tok"};
constexpr Key kGroups = {"expert_group_count", "n_group"};
constexpr Key kGroupsChosen = {"expert_group_used_count", "topk_group"};

// The number of experts has several names.
Key experts_key(const ConfigKeys& keys) {
  for (const char* name : {"num_local_experts", "n_routed_experts"}) {
    if (!keys.is_gguf() && keys.has({"", name})) return {"", name};
  }
  return {"expert_count", "num_experts"};
}

Status check(const ConfigKeys& keys, const MoeConfig& m) {
  if (m.chosen > m.experts) {
    return keys.wrong(
        kChosen, std::to_string(m.chosen),
        "at most the " + std::to_string(m.experts) + " experts of " + keys.name(experts_key(keys)));
  }
  if (m.groups == 1) return ok_status();
  if (m.experts % m.groups != 0) {
    return keys.wrong(kGroups, std::to_string(m.groups),
                      "a divisor of the " + std::to_string(m.experts) + " experts");
  }
  const size_t reachable = m.groups_chosen * (m.experts / m.groups);
  if (m.groups_chosen <= m.groups && m.chosen <= reachable) return ok_status();
  return keys.wrong(kGroupsChosen, std::to_string(m.groups_chosen),
                    "at most the " + std::to_string(m.groups) + " groups, which must hold the " +
                        std::to_string(m.chosen) + " experts of a token");
}

}  // namespace

Result<size_t> read_count(const ConfigKeys& keys, Key key, size_t max, size_t fallback) {
  if (!keys.has(key)) return fallback;
  return keys.count(key, max);
}

Status read_moe(const ConfigKeys& keys, ModelConfig& c) {
  MoeConfig& m = c.moe;
  m.names = keys.is_gguf() ? kGgufMoeNames : kHuggingFaceMoeNames;
  TRY_ASSIGN(m.experts, keys.size(experts_key(keys), kExpertsMax));
  TRY_ASSIGN(m.chosen, keys.size(kChosen, kExpertsChosenMax));
  TRY_ASSIGN(m.width, keys.size({"expert_feed_forward_length", "moe_intermediate_size"}, kWidthMax,
                                c.feed_forward));
  TRY_ASSIGN(m.renormalize, keys.flag({"expert_weights_norm", "norm_topk_prob"}, m.renormalize));
  TRY_ASSIGN(const float scale,
             keys.number({"expert_weights_scale", "routed_scaling_factor"}, m.weight_scale));
  m.weight_scale = scale == 0.0f ? 1.0f : scale;  // GGUF: 0 for none
  for (LayerConfig& layer : c.layer) layer.experts = true;
  return check(keys, m);
}

Status read_first_dense(const ConfigKeys& keys, ModelConfig& c) {
  TRY_ASSIGN(const size_t dense,
             read_count(keys, {"leading_dense_block_count", "first_k_dense_replace"}, 1024, 0));
  for (size_t i = 0; i < c.layers && i < dense; ++i) c.layer[i].experts = false;
  return ok_status();
}

Status read_sparse_step(const ConfigKeys& keys, ModelConfig& c) {
  if (keys.is_gguf()) return ok_status();
  TRY_ASSIGN(const size_t step, keys.size({"", "decoder_sparse_step"}, 1024, size_t{1}));
  for (size_t i = 0; i < c.layers; ++i) c.layer[i].experts = (i + 1) % step == 0;
  constexpr Key kDense = {"", "mlp_only_layers"};
  if (!keys.has(kDense)) return ok_status();
  TRY_ASSIGN(const std::vector<int64_t> dense, keys.integer_list(kDense));
  for (const int64_t layer : dense) {
    if (layer < 0 || layer >= static_cast<int64_t>(c.layers)) {
      return keys.wrong(kDense, std::to_string(layer), "layers below " + std::to_string(c.layers));
    }
    c.layer[static_cast<size_t>(layer)].experts = false;
  }
  return ok_status();
}

Status read_shared_experts(const ConfigKeys& keys, ModelConfig& c) {
  TRY_ASSIGN(const size_t shared,
             read_count(keys, {"expert_shared_count", "n_shared_experts"}, kExpertsMax, 0));
  c.moe.shared_width = shared * c.moe.width;
  return ok_status();
}

Status read_deepseek_router(const ConfigKeys& keys, ModelConfig& c) {
  MoeConfig& m = c.moe;
  TRY_ASSIGN(m.groups, keys.size(kGroups, kExpertsMax, size_t{1}));
  TRY_ASSIGN(m.groups_chosen, keys.size(kGroupsChosen, kExpertsMax, size_t{1}));
  if (m.groups_chosen == m.groups) m.groups = m.groups_chosen = 1;
  m.group_score = MoeConfig::GroupScore::kBestTwo;
  m.score = MoeConfig::Score::kSigmoid;
  m.names.correction =
      keys.is_gguf() ? "blk.#.exp_probs_b.bias" : "model.layers.#.mlp.gate.e_score_correction_bias";
  return check(keys, m);
}

Status read_unused_layers(const ConfigKeys& keys, ModelConfig& c) {
  constexpr Key kAhead = {"nextn_predict_layers", "num_nextn_predict_layers"};
  TRY_ASSIGN(c.layers_unused, read_count(keys, kAhead, 64, 0));
  if (!keys.is_gguf()) return ok_status();
  if (c.layers_unused >= c.layers) {
    return keys.wrong(kAhead, std::to_string(c.layers_unused),
                      "below the " + std::to_string(c.layers) + " layers of block_count");
  }
  c.layers -= c.layers_unused;
  c.layer.resize(c.layers);
  return ok_status();
}

}  // namespace kvikk
