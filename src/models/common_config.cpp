// Reads the keys that decoders of the llama lineage share, and refuses contradictions.

#include <cmath>
#include <optional>

#include "models/registry.h"

namespace kvikk {

namespace {

// Above any published model; a file that says more is damaged or hostile.
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHiddenMax = 1 << 18;
constexpr uint64_t kFeedForwardMax = 1 << 20;
constexpr uint64_t kHeadsMax = 1024;
constexpr uint64_t kHeadDimMax = 512;
constexpr uint64_t kContextMax = uint64_t{1} << 27;

class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  std::string full(const char* key) const { return architecture_ + "." + key; }
  bool has(const char* key) const { return file_.has(full(key)); }

  Result<size_t> size(const char* key, uint64_t max, std::optional<uint64_t> fallback = {}) const {
    if (!has(key) && fallback.has_value()) return static_cast<size_t>(*fallback);
    TRY_ASSIGN(const uint64_t value, file_.get_uint(full(key)));
    if (value < 1 || value > max) {
      return damaged(file_.path() + ": " + full(key) + " is " + std::to_string(value) +
                     "; it must be from 1 to " + std::to_string(max));
    }
    return static_cast<size_t>(value);
  }

  Result<float> positive(const char* key, std::optional<float> fallback = {}) const {
    if (!has(key) && fallback.has_value()) return *fallback;
    TRY_ASSIGN(const float value, file_.get_float(full(key)));
    if (!(value > 0.0f) || !std::isfinite(value)) {
      return damaged(file_.path() + ": " + full(key) + " is " + std::to_string(value) +
                     "; it must be a positive number");
    }
    return value;
  }

 private:
  const GgufFile& file_;
  std::string architecture_;
};

Status read_rope(const GgufFile& file, const Keys& keys, ModelConfig& config) {
  TRY_ASSIGN(config.rotary, keys.size("rope.dimension_count", kHeadDimMax, config.head_dim));
  if (config.rotary > config.head_dim || config.rotary % 2 != 0) {
    return damaged(file.path() + ": " + keys.full("rope.dimension_count") + " is " +
                   std::to_string(config.rotary) + "; it must be even and at most the head size " +
                   std::to_string(config.head_dim));
  }
  TRY_ASSIGN(config.rope.base, keys.positive("rope.freq_base", 10000.0f));
  if (keys.has("rope.scaling.type")) {
    TRY_ASSIGN(const std::string type, file.get_string(keys.full("rope.scaling.type")));
    if (type == "linear") {
      TRY_ASSIGN(config.rope.linear_factor, keys.positive("rope.scaling.factor"));
    } else if (type != "none") {
      return unsupported(file.path() + ": rope scaling '" + type +
                         "' is not supported. Supported: none, linear, llama3 (by the tensor "
                         "rope_freqs.weight).");
    }
  }
  config.rope_sliding = config.rope;
  return ok_status();
}

}  // namespace

Result<ModelConfig> read_common_config(const GgufFile& file, const std::string& architecture) {
  const Keys keys(file, architecture);
  ModelConfig config;
  config.architecture = architecture;
  if (file.has("general.name")) {
    TRY_ASSIGN(config.name, file.get_string("general.name"));
  }
  if (keys.has("expert_count")) {
    TRY_ASSIGN(const uint64_t experts, file.get_uint(keys.full("expert_count")));
    if (experts > 0) {
      return unsupported(file.path() + ": mixture-of-experts models are not supported yet (" +
                         keys.full("expert_count") + " is " + std::to_string(experts) + ")");
    }
  }
  TRY_ASSIGN(config.hidden, keys.size("embedding_length", kHiddenMax));
  TRY_ASSIGN(config.layers, keys.size("block_count", kLayersMax));
  TRY_ASSIGN(config.feed_forward, keys.size("feed_forward_length", kFeedForwardMax));
  TRY_ASSIGN(config.heads, keys.size("attention.head_count", kHeadsMax));
  TRY_ASSIGN(config.kv_heads, keys.size("attention.head_count_kv", kHeadsMax, config.heads));
  TRY_ASSIGN(config.context, keys.size("context_length", kContextMax));
  TRY_ASSIGN(config.norm_epsilon, keys.positive("attention.layer_norm_rms_epsilon"));
  if (config.heads % config.kv_heads != 0) {
    return damaged(file.path() + ": " + std::to_string(config.heads) +
                   " attention heads cannot share " + std::to_string(config.kv_heads) +
                   " key-value heads evenly");
  }
  if (!keys.has("attention.key_length") && config.hidden % config.heads != 0) {
    return damaged(file.path() + ": embedding_length " + std::to_string(config.hidden) +
                   " is no multiple of the " + std::to_string(config.heads) + " heads");
  }
  TRY_ASSIGN(config.head_dim,
             keys.size("attention.key_length", kHeadDimMax, config.hidden / config.heads));
  TRY_ASSIGN(const size_t value_dim,
             keys.size("attention.value_length", kHeadDimMax, config.head_dim));
  if (value_dim != config.head_dim) {
    return unsupported(file.path() + ": keys of " + std::to_string(config.head_dim) +
                       " and values of " + std::to_string(value_dim) +
                       " elements a head are not supported; they must be equal");
  }
  if (config.head_dim % 16 != 0 || config.head_dim > kHeadDimMax) {
    return unsupported(file.path() + ": a head size of " + std::to_string(config.head_dim) +
                       " is not supported; it must be a multiple of 16 up to 512");
  }
  TRY(read_rope(file, keys, config));
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.sliding.assign(config.layers, false);
  return config;
}

}  // namespace kvikk
