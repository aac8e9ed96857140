#include "models/rope.h"

#include <algorithm>
#include <cmath>

#include "models/config.h"
#include "models/config_keys.h"

namespace kvikk {
namespace {

using Scaling = RopeConfig::Scaling;

constexpr size_t kContextMax = size_t{1} << 27;
constexpr double kTwoPi = 6.283185307179586;

// Llama 3.1: long wavelengths are stretched, short ones kept, those between blended.
double stretch_llama3(const RopeConfig& rope, double f) {
  const double context = static_cast<double>(rope.original_context);
  const double low = static_cast<double>(rope.low_frequency);
  const double high = static_cast<double>(rope.high_frequency);
  const double turns = context * f / kTwoPi;  // within the original context
  if (turns < low) return f / static_cast<double>(rope.factor);
  if (turns > high) return f;
  const double keep = (turns - low) / (high - low);
  return (1.0 - keep) * f / static_cast<double>(rope.factor) + keep * f;
}

// YaRN (Peng et al. 2023, section 3.2): the pair that turns `turns` times within the context.
double yarn_pair(const RopeConfig& rope, double rotary, double turns) {
  return rotary * std::log(static_cast<double>(rope.original_context) / (turns * kTwoPi)) /
         (2.0 * std::log(static_cast<double>(rope.base)));
}

void stretch_yarn(const RopeConfig& rope, size_t rotary, float* out) {
  const double width = static_cast<double>(rotary);
  double low = yarn_pair(rope, width, static_cast<double>(rope.beta_fast));
  double high = yarn_pair(rope, width, static_cast<double>(rope.beta_slow));
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rotary / 2; ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double f = static_cast<double>(out[i]);
    out[i] = static_cast<float>(f / static_cast<double>(rope.factor) * stretched +
                                f * (1.0 - stretched));
  }
}

}  // namespace

bool uses_long_factors(const RopeConfig& rope, size_t context) {
  return rope.scaling == Scaling::kLongRope && static_cast<float>(context) > rope.original_context;
}

void fill_inverse_frequencies(const RopeConfig& rope, size_t rotary, size_t context, float* out) {
  for (size_t i = 0; i < rotary / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rotary);
    out[i] = static_cast<float>(1.0 / std::pow(static_cast<double>(rope.base), exponent));
    if (!rope.divisors.empty()) out[i] /= rope.divisors[i];
    if (rope.scaling == Scaling::kLinear) out[i] /= rope.factor;
    if (rope.scaling == Scaling::kLlama3) {
      out[i] = static_cast<float>(stretch_llama3(rope, static_cast<double>(out[i])));
    }
    if (rope.scaling == Scaling::kLongRope) {
      out[i] /= (uses_long_factors(rope, context) ? rope.long_factors : rope.short_factors)[i];
    }
  }
  if (rope.scaling == Scaling::kYarn) stretch_yarn(rope, rotary, out);
}

namespace {

// One object of a config.json that describes a rotation, or the same keys of a GGUF file.
class RopeReader {
 public:
  // `object`: where in a config.json the keys are; "" for a GGUF file.
  RopeReader(const ConfigKeys& keys, const ModelConfig& config, std::string object)
      : keys_(keys), config_(config), object_(std::move(object)) {}

  Status read(RopeConfig& rope) {
    if (has("rope_theta", "rope.freq_base")) {
      TRY_ASSIGN(rope.base, positive("rope_theta", "rope.freq_base"));
    }
    if (keys_.is_gguf()) {  // longrope is told by its tensors, and by these keys without a type
      TRY_ASSIGN(rope.attention_factor, positive("", "rope.scaling.attn_factor", 1.0f));
      TRY(read_original_context(rope));
    }
    TRY_ASSIGN(const std::string type, scaling_type());
    if (type == "default" || type == "none") return ok_status();
    if (type == "linear") return read_linear(rope);
    if (type == "llama3") return read_llama3(rope);
    if (type == "yarn") return read_yarn(rope);
    if (type == "longrope" || type == "su") return read_long(rope);
    if (type == "dynamic" && has("alpha", "")) return read_alpha(rope);
    return unsupported(keys_.path() + ": " + json("rope_type") + " '" + type +
                       "' is not supported. Supported: default, linear, llama3, yarn, longrope, " +
                       "and dynamic with an alpha.");
  }

 private:
  std::string json(const char* key) const { return object_.empty() ? key : object_ + "." + key; }
  bool has(const char* json_key, const char* gguf_key) const {
    return keys_.has({gguf_key, json(json_key)});
  }
  Result<float> positive(const char* json_key, const char* gguf_key,
                         std::optional<float> fallback = {}) const {
    return keys_.positive({gguf_key, json(json_key)}, fallback);
  }

  Result<std::string> scaling_type() const {
    if (keys_.is_gguf()) return keys_.text({"rope.scaling.type", ""}, "none");
    if (has("rope_type", "")) return keys_.text({"", json("rope_type")});
    return keys_.text({"", json("type")}, "default");
  }

  Status read_factor(RopeConfig& rope) {
    TRY_ASSIGN(rope.factor, positive("factor", "rope.scaling.factor"));
    return ok_status();
  }

  // The object's own key, else the model's, else what the model was trained for.
  Status read_original_context(RopeConfig& rope) {
    constexpr char kJson[] = "original_max_position_embeddings";
    constexpr char kGguf[] = "rope.scaling.original_context_length";
    const std::string own_json = json(kJson);
    const Key key = keys_.has({kGguf, own_json}) ? Key{kGguf, own_json} : Key{kGguf, kJson};
    TRY_ASSIGN(const size_t context, keys_.size(key, kContextMax, config_.context));
    rope.original_context = static_cast<float>(context);
    return ok_status();
  }

  Status read_linear(RopeConfig& rope) {
    rope.scaling = Scaling::kLinear;
    return read_factor(rope);
  }

  // Hunyuan: a base raised once and for all, so that the slowest pair turns alpha times slower.
  Status read_alpha(RopeConfig& rope) {
    TRY_ASSIGN(const float alpha, positive("alpha", ""));
    const float width = static_cast<float>(config_.rotary);
    if (config_.rotary > 2) rope.base *= std::pow(alpha, width / (width - 2.0f));
    return ok_status();
  }

  Status read_llama3(RopeConfig& rope) {
    rope.scaling = Scaling::kLlama3;
    TRY(read_factor(rope));
    TRY(read_original_context(rope));
    TRY_ASSIGN(rope.low_frequency, positive("low_freq_factor", ""));
    TRY_ASSIGN(rope.high_frequency, positive("high_freq_factor", ""));
    if (rope.high_frequency > rope.low_frequency) return ok_status();
    return keys_.wrong({"", json("high_freq_factor")}, std::to_string(rope.high_frequency),
                       "above low_freq_factor " + std::to_string(rope.low_frequency));
  }

  // A given attention factor stands; else the paper's, or the ratio of two of them.
  Status read_yarn(RopeConfig& rope) {
    rope.scaling = Scaling::kYarn;
    TRY(read_factor(rope));
    TRY(read_original_context(rope));
    TRY_ASSIGN(rope.beta_fast, positive("beta_fast", "rope.scaling.yarn_beta_fast", 32.0f));
    TRY_ASSIGN(rope.beta_slow, positive("beta_slow", "rope.scaling.yarn_beta_slow", 1.0f));
    TRY_ASSIGN(rope.truncate, keys_.flag({"", json("truncate")}, true));
    const auto magnitude = [&](float scale) {
      return rope.factor <= 1.0f ? 1.0f : 0.1f * scale * std::log(rope.factor) + 1.0f;
    };
    rope.attention_factor *= magnitude(1.0f);
    TRY_ASSIGN(const float mscale, keys_.number({"", json("mscale")}, 0.0f));
    TRY_ASSIGN(const float mscale_all, keys_.number({"", json("mscale_all_dim")}, 0.0f));
    if (mscale > 0.0f && mscale_all > 0.0f) {
      rope.attention_factor = magnitude(mscale) / magnitude(mscale_all);
    }
    if (has("attention_factor", "")) {
      TRY_ASSIGN(rope.attention_factor, positive("attention_factor", ""));
    }
    if (rope.base <= 1.0f) {
      return keys_.wrong({"rope.freq_base", json("rope_theta")}, std::to_string(rope.base),
                         "above 1 with yarn");
    }
    return ok_status();
  }

  Status read_long(RopeConfig& rope) {
    rope.scaling = Scaling::kLongRope;
    TRY(read_original_context(rope));
    if (keys_.is_gguf()) return ok_status();  // the factors are tensors
    const size_t pairs = config_.rotary / 2;
    TRY_ASSIGN(rope.short_factors, keys_.numbers({"", json("short_factor")}, pairs));
    TRY_ASSIGN(rope.long_factors, keys_.numbers({"", json("long_factor")}, pairs));
    for (const auto* factors : {&rope.short_factors, &rope.long_factors}) {
      for (const float factor : *factors) {
        if (factor > 0.0f && std::isfinite(factor)) continue;
        return damaged(keys_.path() + ": " + json("short_factor") + " and long_factor must be " +
                       "positive; one is " + std::to_string(factor));
      }
    }
    if (rope.original_context <= 1.0f) {
      return keys_.wrong({"", "original_max_position_embeddings"},
                         std::to_string(rope.original_context), "above 1 with longrope");
    }
    const float ratio = static_cast<float>(config_.context) / rope.original_context;
    TRY_ASSIGN(const float factor, positive("factor", "", ratio));
    const float extended =
        factor <= 1.0f ? 1.0f
                       : std::sqrt(1.0f + std::log(factor) / std::log(rope.original_context));
    TRY_ASSIGN(rope.attention_factor, positive("attention_factor", "", extended));
    return ok_status();
  }

  const ConfigKeys& keys_;
  const ModelConfig& config_;
  std::string object_;
};

Status read_rotary(const ConfigKeys& keys, ModelConfig& config) {
  const size_t head = config.head_dim;
  config.rotary = static_cast<size_t>(static_cast<float>(head) * config.rotary_part);
  if (keys.is_gguf()) {
    TRY_ASSIGN(config.rotary, keys.size({"rope.dimension_count", ""}, head, config.rotary));
  } else {
    for (const char* name : {"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}) {
      if (!keys.has({"", name})) continue;
      TRY_ASSIGN(const float part, keys.positive({"", name}));
      if (part > 1.0f) return keys.wrong({"", name}, std::to_string(part), "at most 1");
      config.rotary = static_cast<size_t>(static_cast<float>(head) * part);
    }
  }
  if (config.rotary % 2 == 0 && config.rotary > 0) return ok_status();
  return keys.wrong({"rope.dimension_count", "partial_rotary_factor"},
                    std::to_string(config.rotary) + " rotating dimensions",
                    "an even number up to the head size " + std::to_string(head));
}

}  // namespace

Status read_rope(const ConfigKeys& keys, ModelConfig& config) {
  TRY(read_rotary(keys, config));
  if (keys.is_gguf()) {
    TRY(RopeReader(keys, config, "").read(config.rope));
    config.rope_sliding = config.rope;
    return ok_status();
  }
  for (const char* object : {"rope_parameters", "rope_parameters.full_attention",
                             "rope_parameters.sliding_attention", "rope_scaling"}) {
    TRY(keys.must_be_object({"", object}));
  }
  // transformers 4: rope_theta beside rope_scaling; 5: all in rope_parameters, perhaps one for each
  // kind of layer.
  if (keys.is_object({"", "rope_parameters.full_attention"})) {
    TRY(RopeReader(keys, config, "rope_parameters.full_attention").read(config.rope));
    config.rope_sliding = config.rope;
    if (!keys.is_object({"", "rope_parameters.sliding_attention"})) return ok_status();
    config.rope_sliding = RopeConfig{};
    return RopeReader(keys, config, "rope_parameters.sliding_attention").read(config.rope_sliding);
  }
  TRY_ASSIGN(config.rope.base, keys.positive({"", "rope_theta"}, config.rope.base));
  const char* object = keys.is_object({"", "rope_parameters"}) ? "rope_parameters" : "rope_scaling";
  if (keys.is_object({"", object})) TRY(RopeReader(keys, config, object).read(config.rope));
  config.rope_sliding = config.rope;
  return ok_status();
}

}  // namespace kvikk
