#include "models/moe.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "models/row_ops.h"

namespace kvikk {

namespace {

size_t padded(size_t n) { return (n + kPanelRows - 1) / kPanelRows * kPanelRows; }

void softmax(float* x, size_t n) {
  const float max = *std::max_element(x, x + n);
  float sum = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - max);
    sum += x[i];
  }
  for (size_t i = 0; i < n; ++i) x[i] /= sum;
}

// The largest of `values` that is not taken, marked as taken. The lower number wins a tie; a NaN
// never wins against a number.
size_t take_best(const float* values, size_t n, bool* taken) {
  size_t best = n;
  for (size_t i = 0; i < n; ++i) {
    if (taken[i]) continue;
    const bool number = best < n && std::isnan(values[best]) && !std::isnan(values[i]);
    if (best == n || number || values[i] > values[best]) best = i;
  }
  CHECK(best < n);
  taken[best] = true;
  return best;
}

// Marks the experts of all groups but the best ones as taken.
void exclude_groups(const MoeConfig& config, const float* scores, bool* taken) {
  const size_t size = config.experts / config.groups;
  float group_scores[kExpertsMax];
  bool group_taken[kExpertsMax] = {};
  for (size_t g = 0; g < config.groups; ++g) {
    const float* members = scores + g * size;
    bool used[kExpertsMax] = {};
    group_scores[g] = members[take_best(members, size, used)];
    if (config.group_score == MoeConfig::GroupScore::kBestTwo && size > 1) {
      group_scores[g] += members[take_best(members, size, used)];
    }
  }
  for (size_t i = 0; i < config.groups_chosen; ++i) {
    take_best(group_scores, config.groups, group_taken);
  }
  for (size_t e = 0; e < config.experts; ++e) taken[e] = !group_taken[e / size];
}

// The activation of gpt-oss; a NaN stays one.
void clamped_swiglu(const float* gate, const float* up, size_t n, float limit, float* out) {
  constexpr float kAlpha = 1.702f;
  for (size_t i = 0; i < n; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float above = up[i] > limit ? limit : up[i];
    const float u = above < -limit ? -limit : above;
    out[i] = (u + 1.0f) * (g / (1.0f + std::exp(-kAlpha * g)));
  }
}

}  // namespace

void choose_experts(const MoeConfig& config, const float* correction, float* logits,
                    ExpertChoice* choices) {
  const size_t n = config.experts;
  if (config.score == MoeConfig::Score::kSoftmax) {
    softmax(logits, n);
  } else {
    for (size_t e = 0; e < n; ++e) logits[e] = 1.0f / (1.0f + std::exp(-logits[e]));
  }
  float corrected[kExpertsMax];
  for (size_t e = 0; e < n; ++e) {
    corrected[e] = logits[e] + (correction == nullptr ? 0.0f : correction[e]);
  }
  bool taken[kExpertsMax] = {};
  if (config.groups > 1) exclude_groups(config, corrected, taken);
  float sum = 0.0f;
  for (size_t i = 0; i < config.chosen; ++i) {
    const size_t expert = take_best(corrected, n, taken);
    choices[i] = {static_cast<uint32_t>(expert), logits[expert]};
    sum += logits[expert];
  }
  constexpr float kTiny = 1e-20f;  // a sum of zeros
  const float divisor = config.renormalize ? sum + kTiny : 1.0f;
  for (size_t i = 0; i < config.chosen; ++i) {
    choices[i].weight = choices[i].weight / divisor * config.weight_scale;
  }
  std::sort(choices, choices + config.chosen,
            [](const ExpertChoice& a, const ExpertChoice& b) { return a.expert < b.expert; });
}

Result<MoeBlock> MoeBlock::create(const ModelConfig& config, size_t rows_max) {
  const MoeConfig& m = config.moe;
  CHECK(m.experts <= kExpertsMax && m.chosen <= kExpertsChosenMax);
  MoeBlock block;
  TRY_ASSIGN(block.mixture_,
             ExpertMixture::create({m.experts, m.chosen, config.hidden, m.width}, rows_max));
  const auto floats = [](size_t n) { return Buffer::allocate(n * sizeof(float)); };
  TRY_ASSIGN(block.logits_, floats(rows_max * padded(m.experts)));
  block.choices_.resize(rows_max * m.chosen);
  if (m.shared_width == 0) return block;
  TRY_ASSIGN(block.gate_, floats(rows_max * padded(m.shared_width)));
  TRY_ASSIGN(block.up_, floats(rows_max * padded(m.shared_width)));
  TRY_ASSIGN(block.shared_, floats(rows_max * padded(config.hidden)));
  TRY_ASSIGN(block.inner_, Activations::allocate(rows_max, m.shared_width));
  return block;
}

void MoeBlock::run(Compute& compute, const ModelConfig& config, const MoeWeights& weights,
                   Activations& x, float* y, size_t y_stride) {
  const MoeConfig& m = config.moe;
  const Kernels& kernels = compute.kernels();
  route(compute, config, weights, x);
  // Two references fit into the function object itself: nothing is allocated.
  const GatedActivation activation = [&kernels, &config](const float* gate, const float* up,
                                                         size_t n, float* out) {
    if (config.moe.clamp > 0.0f) {
      clamped_swiglu(gate, up, n, config.moe.clamp, out);
    } else {
      activate_multiply(kernels, config.activation, gate, up, n, out);
    }
  };
  ExpertMixture::Call call;
  call.experts = weights.experts;
  call.choices = std::span(choices_).first(x.rows() * m.chosen);
  call.x = x.floats();
  call.x_stride = x.k();
  call.activation = &activation;
  call.y = y;
  call.y_stride = y_stride;
  compute.pool().label("experts");
  mixture_.run(compute, call);
  if (m.shared_width > 0) add_shared(compute, config, weights, x, y, y_stride);
}

void MoeBlock::route(Compute& compute, const ModelConfig& config, const MoeWeights& weights,
                     const Activations& x) {
  const MoeConfig& m = config.moe;
  const size_t stride = padded(m.experts);
  const Product product = {&weights.router, logits_.as<float>(), stride};
  compute.pool().label("router");
  matmul(compute, x, {&product, 1});
  const float* correction = weights.correction.empty() ? nullptr : weights.correction.data();
  compute.for_rows(x.rows(), [&](size_t r, int) {
    float* logits = logits_.as<float>() + r * stride;
    add_vector(compute.kernels(), weights.router_bias, logits);
    choose_experts(m, correction, logits, choices_.data() + r * m.chosen);
  });
}

void MoeBlock::add_shared(Compute& compute, const ModelConfig& config, const MoeWeights& weights,
                          Activations& x, float* y, size_t y_stride) {
  const Kernels& kernels = compute.kernels();
  const size_t width = config.moe.shared_width;
  const size_t stride = padded(width);
  const Product products[] = {{&weights.shared_gate, gate_.as<float>(), stride},
                              {&weights.shared_up, up_.as<float>(), stride}};
  compute.pool().label("shared expert");
  matmul(compute, x, products);
  inner_.shape(x.rows(), width);
  compute.for_rows(x.rows(), [&](size_t r, int) {
    activate_multiply(kernels, config.activation, gate_.as<float>() + r * stride,
                      up_.as<float>() + r * stride, width, inner_.row(r));
    if (weights.shared_down.quantized()) inner_.quantize(kernels, r);
  });
  const size_t out_stride = padded(config.hidden);
  const Product product = {&weights.shared_down, shared_.as<float>(), out_stride};
  matmul(compute, inner_, {&product, 1});
  compute.for_rows(x.rows(), [&](size_t r, int) {
    float* shared = shared_.as<float>() + r * out_stride;
    if (!weights.shared_mix.empty()) {
      float dot = 0.0f;
      for (size_t i = 0; i < config.hidden; ++i) dot += weights.shared_mix[i] * x.row(r)[i];
      scale_row(1.0f / (1.0f + std::exp(-dot)), config.hidden, shared);
    }
    kernels.add(y + r * y_stride, shared, config.hidden);
  });
}

}  // namespace kvikk
