// Reads the keys that decoders share, and refuses contradictions.

#include <algorithm>
#include <cmath>

#include "kv/page_pool.h"
#include "models/family.h"

namespace kvikk {

namespace {

// Above any published model; a file that says more is damaged or hostile.
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHiddenMax = 1 << 18;
constexpr uint64_t kFeedForwardMax = 1 << 20;
constexpr uint64_t kHeadsMax = 1024;
constexpr uint64_t kHeadDimMax = kKvDimMax;
constexpr uint64_t kContextMax = uint64_t{1} << 27;
constexpr uint64_t kVocabularyMax = 1 << 24;

constexpr Key kHidden = {"embedding_length", "hidden_size"};
constexpr Key kHeads = {"attention.head_count", "num_attention_heads"};
constexpr Key kKvHeads = {"attention.head_count_kv", "num_key_value_heads"};
constexpr Key kHeadDim = {"attention.key_length", "head_dim"};

Status read_heads(const ConfigKeys& keys, ModelConfig& config) {
  TRY_ASSIGN(config.heads, keys.size(kHeads, kHeadsMax));
  if (config.kv_heads == 0) {  // else the family knows
    TRY_ASSIGN(config.kv_heads, keys.size(kKvHeads, kHeadsMax, config.heads));
  }
  if (config.heads % config.kv_heads != 0) {
    return damaged(keys.path() + ": " + keys.name(kHeads) + " is " + std::to_string(config.heads) +
                   " and " + keys.name(kKvHeads) + " is " + std::to_string(config.kv_heads) +
                   ": the heads cannot share the key-value heads evenly");
  }
  if (!keys.has(kHeadDim) && config.hidden % config.heads != 0) {
    return damaged(keys.path() + ": " + keys.name(kHidden) + " is " +
                   std::to_string(config.hidden) + " and " + keys.name(kHeads) + " is " +
                   std::to_string(config.heads) + ": the width is no multiple of the heads");
  }
  TRY_ASSIGN(config.head_dim, keys.size(kHeadDim, kHeadDimMax, config.hidden / config.heads));
  TRY_ASSIGN(config.value_dim,
             keys.size({"attention.value_length", ""}, kHeadDimMax, config.head_dim));
  if (config.value_dim > config.head_dim) {
    return unsupported(keys.path() + ": values of " + std::to_string(config.value_dim) +
                       " elements a head are not supported beside keys of " +
                       std::to_string(config.head_dim) + "; they must not be larger");
  }
  if (config.head_dim <= kHeadDimMax) return ok_status();
  return unsupported(keys.path() + ": a head size of " + std::to_string(config.head_dim) +
                     " is not supported; it must be at most " + std::to_string(kHeadDimMax));
}

Status read_activation(const ConfigKeys& keys, ModelConfig& config) {
  constexpr Key kActivation = {"", "hidden_act"};
  if (!keys.has(kActivation)) return ok_status();  // the family's
  TRY_ASSIGN(const std::string name, keys.text(kActivation));
  struct Row {
    const char* name;
    Activation activation;
  };
  constexpr Row kActivations[] = {
      {"silu", Activation::kSilu},         {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},         {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh}, {"gelu_fast", Activation::kGeluTanh},
      {"relu2", Activation::kRelu2},
  };
  std::string known;
  for (const Row& row : kActivations) {
    if (name == row.name) {
      config.activation = row.activation;
      return ok_status();
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return unsupported(keys.path() + ": " + keys.name(kActivation) + " '" + name +
                     "' is not supported. Supported: " + known + ".");
}

Status refuse_quantization(const ConfigKeys& keys) {
  TRY(keys.must_be_object({"", "quantization_config"}));
  constexpr Key kMethod = {"", "quantization_config.quant_method"};
  if (!keys.has(kMethod)) return ok_status();
  TRY_ASSIGN(const std::string method, keys.text(kMethod));
  if (method == "fp8" || method == "mxfp4") return ok_status();
  return unsupported(keys.path() + ": " + keys.name(kMethod) + " '" + method +
                     "' is not supported. Supported: fp8, mxfp4, or weights as BF16, F16 or F32.");
}

// A decoder's cache serves every continuation: no token sees what comes after it.
Status refuse_bidirectional(const ConfigKeys& keys, const ModelConfig& config) {
  constexpr Key kBothWays = {"", "use_bidirectional_attention"};
  TRY_ASSIGN(const bool both, keys.flag(kBothWays, false));
  if (!both || config.encoder) return ok_status();
  return unsupported(keys.path() + ": " + keys.name(kBothWays) +
                     " is true; tokens of this architecture see only those before them here");
}

// What is not there comes from the family, or from custom.
Status read_sizes(const ConfigKeys& keys, ModelConfig& config) {
  const auto or_error = [](size_t n) { return n > 0 ? std::optional(n) : std::nullopt; };
  const size_t usual = config.gated_mlp ? 0 : 4 * config.hidden;
  TRY_ASSIGN(config.feed_forward, keys.size({"feed_forward_length", "intermediate_size"},
                                            kFeedForwardMax, or_error(usual)));
  TRY_ASSIGN(config.context, keys.size({"context_length", "max_position_embeddings"}, kContextMax,
                                       or_error(config.context)));
  return ok_status();
}

}  // namespace

size_t ModelConfig::widest() const {
  if (mla.rank > 0) return std::max({hidden, heads * mla.value, mla.q_rank, feed_forward});
  return std::max({hidden, heads * std::max(head_dim, value_dim), feed_forward});
}

Result<ModelConfig> read_common_config(const ConfigKeys& keys, const ModelConfig& defaults) {
  ModelConfig config = defaults;
  config.architecture = keys.architecture();
  config.names = keys.is_gguf() ? kGgufNames : kHuggingFaceNames;
  if (keys.has({"general.name", ""})) {
    TRY_ASSIGN(config.name, keys.text({"general.name", ""}));
  }
  if (keys.is_gguf()) {  // biases are where their tensors are
    config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = Presence::kIfThere;
  } else {
    TRY_ASSIGN(config.vocabulary, keys.size({"", "vocab_size"}, kVocabularyMax));
    TRY(refuse_quantization(keys));
    TRY(refuse_bidirectional(keys, config));
  }
  TRY_ASSIGN(config.hidden, keys.size(kHidden, kHiddenMax));
  TRY_ASSIGN(config.layers, keys.size({"block_count", "num_hidden_layers"}, kLayersMax));
  TRY(read_sizes(keys, config));
  const Key epsilon = config.norm == NormKind::kRms
                          ? Key{"attention.layer_norm_rms_epsilon", "rms_norm_eps"}
                          : Key{"attention.layer_norm_epsilon", "layer_norm_eps"};
  TRY_ASSIGN(config.norm_epsilon,
             keys.positive(epsilon, config.norm_epsilon > 0.0f ? std::optional(config.norm_epsilon)
                                                               : std::nullopt));
  TRY(read_heads(keys, config));
  TRY(read_activation(keys, config));
  TRY(read_rope(keys, config));
  constexpr Key kTied = {"", "tie_word_embeddings"};
  if (keys.has(kTied)) {
    TRY_ASSIGN(const bool tied, keys.flag(kTied));
    config.tied = tied ? Presence::kYes : Presence::kNo;
  }
  if (config.attention_scale == 0.0f) {
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  }
  config.layer.assign(config.layers, LayerConfig{});
  return config;
}

Result<Presence> read_bias(const ConfigKeys& keys, std::string_view json_key, bool fallback) {
  if (keys.is_gguf()) return Presence::kIfThere;
  TRY_ASSIGN(const bool biased, keys.flag({"", json_key}, fallback));
  return biased ? Presence::kYes : Presence::kNo;
}

Status read_window(const ConfigKeys& keys, ModelConfig& config) {
  constexpr Key kWindow = {"attention.sliding_window", "sliding_window"};
  config.window = 0;
  if (!keys.has(kWindow)) return ok_status();
  TRY_ASSIGN(config.window, keys.count(kWindow, kContextMax));
  return ok_status();
}

Result<bool> read_layer_types(const ConfigKeys& keys, ModelConfig& config) {
  constexpr Key kSlides = {"attention.sliding_window_pattern", ""};
  if (keys.is_list(kSlides)) {
    TRY_ASSIGN(const std::vector<int64_t> slides, keys.integers(kSlides, config.layers));
    for (size_t i = 0; i < slides.size(); ++i) config.layer[i].sliding = slides[i] != 0;
    return true;
  }
  constexpr Key kTypes = {"", "layer_types"};
  if (!keys.has(kTypes)) return false;
  TRY_ASSIGN(const std::vector<std::string> types, keys.texts(kTypes, config.layers));
  for (size_t i = 0; i < types.size(); ++i) {
    config.layer[i].sliding = types[i] == "sliding_attention";
    if (config.layer[i].sliding || types[i] == "full_attention") continue;
    return unsupported(keys.path() + ": " + keys.name(kTypes) + " of layer " + std::to_string(i) +
                       " is '" + types[i] + "'. Supported: full_attention, sliding_attention.");
  }
  return true;
}

Status read_sliding_pattern(const ConfigKeys& keys, size_t usual, ModelConfig& config) {
  TRY_ASSIGN(const bool listed, read_layer_types(keys, config));
  if (listed) return ok_status();
  constexpr Key kPattern = {"attention.sliding_window_pattern", "sliding_window_pattern"};
  TRY_ASSIGN(const size_t pattern, keys.size(kPattern, config.layers + 1, usual));
  for (size_t i = 0; i < config.layers; ++i) config.layer[i].sliding = (i + 1) % pattern != 0;
  return ok_status();
}

Status check_windows(const ConfigKeys& keys, ModelConfig& config) {
  const auto slides = [](const LayerConfig& layer) { return layer.sliding; };
  if (std::none_of(config.layer.begin(), config.layer.end(), slides)) config.window = 0;
  if (config.window > 0 || std::none_of(config.layer.begin(), config.layer.end(), slides)) {
    return ok_status();
  }
  return damaged(keys.path() + ": layers slide, but " +
                 keys.name({"attention.sliding_window", "sliding_window"}) + " is missing");
}

void name_qk_norms(const ConfigKeys& keys, ModelConfig& config) {
  config.names.q_norm = keys.is_gguf() ? "blk.#.attn_q_norm" : "model.layers.#.self_attn.q_norm";
  config.names.k_norm = keys.is_gguf() ? "blk.#.attn_k_norm" : "model.layers.#.self_attn.k_norm";
}

void name_norms_at_end(const ConfigKeys& keys, ModelConfig& config) {
  const bool gguf = keys.is_gguf();
  config.names.attention_norm = nullptr;
  config.names.mlp_norm = nullptr;
  config.names.post_attention_norm =
      gguf ? "blk.#.post_attention_norm" : "model.layers.#.post_attention_layernorm";
  config.names.post_mlp_norm =
      gguf ? "blk.#.post_ffw_norm" : "model.layers.#.post_feedforward_layernorm";
}

}  // namespace kvikk
