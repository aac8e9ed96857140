// The forward pass of a decoder. A layer is seven phases, each split over threads and ended by a
// barrier; phases of one row (decode) that are too small to split run on the calling thread:
//
//   1 x += y; n = norm(x), quantized        5 attention output quantized; y = Wo a
//   2 q, k, v = W n                         6 x += y; n = norm(x); gate, up = W n
//   3 bias, norm, rotate, store k and v     7 y = Wdown (act(gate) * up)
//   4 attend
//
// y joins x at the start of the next phase 1, so that no phase exists for the addition alone.

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "models/model.h"
#include "weights/block_formats.h"

namespace kvikk {

namespace {

size_t padded(size_t n) { return (n + kPanelRows - 1) / kPanelRows * kPanelRows; }

// Rotary frequencies; float32 like the originals, whose rounding is part of the model.
void fill_inverse_frequencies(const RopeConfig& rope, size_t rotary, float* out) {
  for (size_t i = 0; i < rotary / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rotary);
    const float plain =
        static_cast<float>(1.0 / std::pow(static_cast<double>(rope.base), exponent));
    const float divisor = rope.divisors.empty() ? 1.0f : rope.divisors[i];
    out[i] = plain / divisor / rope.linear_factor;
  }
}

void add_bias(const std::vector<float>& bias, size_t offset, size_t n, const Kernels& kernels,
              float* x) {
  if (!bias.empty()) kernels.add(x, bias.data() + offset, n);
}

}  // namespace

KvShape Model::kv_shape(const ModelConfig& config, KvFormat format) {
  KvShape shape;
  shape.format = format;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  KvGroup full;
  KvGroup sliding;
  sliding.window = config.window;
  for (size_t i = 0; i < config.layers; ++i) {
    (config.sliding[i] ? sliding : full).layers.push_back(i);
  }
  if (!full.layers.empty()) shape.groups.push_back(full);
  if (!sliding.layers.empty()) shape.groups.push_back(sliding);
  return shape;
}

Result<std::unique_ptr<Model>> Model::create(std::shared_ptr<const GgufFile> file,
                                             ModelConfig config, ModelWeights weights,
                                             Compute& compute, size_t rows_max,
                                             size_t context_max) {
  std::unique_ptr<Model> model(new Model(std::move(config), std::move(weights)));
  model->file_ = std::move(file);
  model->rows_max_ = rows_max;
  const KvShape shape = kv_shape(model->config_, KvFormat::kBF16);
  model->places_.resize(model->config_.layers);
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    for (size_t i = 0; i < shape.groups[g].layers.size(); ++i) {
      model->places_[shape.groups[g].layers[i]] = {g, i};
    }
  }
  TRY(model->allocate(compute, context_max));
  return model;
}

Status Model::allocate(const Compute& compute, size_t context_max) {
  const ModelConfig& c = config_;
  const size_t half = c.rotary / 2;
  const auto floats = [](size_t n) { return Buffer::allocate(n * sizeof(float)); };
  positions_.resize(rows_max_);
  span_of_row_.resize(rows_max_);
  TRY_ASSIGN(x_, floats(rows_max_ * c.hidden));
  TRY_ASSIGN(y_, floats(rows_max_ * padded(c.hidden)));
  TRY_ASSIGN(q_, floats(rows_max_ * padded(c.heads * c.head_dim)));
  TRY_ASSIGN(k_, floats(rows_max_ * padded(c.kv_heads * c.head_dim)));
  TRY_ASSIGN(v_, floats(rows_max_ * padded(c.kv_heads * c.head_dim)));
  TRY_ASSIGN(gate_, floats(rows_max_ * padded(c.feed_forward)));
  TRY_ASSIGN(up_, floats(rows_max_ * padded(c.feed_forward)));
  TRY_ASSIGN(rope_tables_, floats(rows_max_ * 4 * half));
  TRY_ASSIGN(inverse_freq_, floats(2 * half));
  TRY_ASSIGN(outputs_, floats(rows_max_ * c.hidden));
  TRY_ASSIGN(logits_, floats(kLogitsRowsMax * logits_stride()));
  const size_t widest = std::max({c.hidden, c.heads * c.head_dim, c.feed_forward});
  TRY_ASSIGN(in_, Activations::allocate(rows_max_, widest));
  TRY_ASSIGN(head_in_, Activations::allocate(kLogitsRowsMax, c.hidden));
  const int threads = compute.threads();
  TRY_ASSIGN(Attention attention,
             Attention::create(threads, c.heads, c.kv_heads, c.head_dim, context_max));
  attention_ = std::make_unique<Attention>(std::move(attention));
  fill_inverse_frequencies(c.rope, c.rotary, inverse_freq_.as<float>());
  fill_inverse_frequencies(c.rope_sliding, c.rotary, inverse_freq_.as<float>() + half);
  return ok_status();
}

void Model::forward(Compute& compute, const Batch& batch) {
  CHECK(!batch.tokens.empty());
  CHECK(batch.tokens.size() <= rows_max_);
  size_t row = 0;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const Span& span = batch.spans[s];
    CHECK(span.first_row == row);
    for (size_t i = 0; i < span.rows; ++i, ++row) {
      positions_[row] = static_cast<uint32_t>(span.first_position + i);
      span_of_row_[row] = static_cast<uint32_t>(s);
    }
  }
  CHECK(row == batch.tokens.size());
  for (size_t i = 0; i < batch.output_rows.size(); ++i) {
    CHECK(batch.output_rows[i] < row);
    CHECK(i == 0 || batch.output_rows[i] > batch.output_rows[i - 1]);
  }
  embed(compute, batch);
  fill_rope_tables(compute, batch);
  for (size_t layer = 0; layer < config_.layers; ++layer) {
    attention_block(compute, batch, layer);
    mlp_block(compute, layer);
  }
  gather_outputs(compute, batch);
}

void Model::embed(Compute& compute, const Batch& batch) {
  const StoredTensor& tensor = *weights_.embedding;
  const size_t row_size = row_bytes(tensor.type, config_.hidden);
  compute.pool().parallel_for(batch.tokens.size(), [&](size_t r, int) {
    float* x = x_.as<float>() + r * config_.hidden;
    const auto token = static_cast<size_t>(batch.tokens[r]);
    dequantize_row(tensor.type, tensor.bytes.data() + token * row_size, x, config_.hidden);
    if (config_.embedding_scale == 1.0f) return;
    for (size_t i = 0; i < config_.hidden; ++i) x[i] *= config_.embedding_scale;
  });
}

void Model::fill_rope_tables(Compute& compute, const Batch& batch) {
  const size_t half = config_.rotary / 2;
  const size_t kinds = config_.window > 0 ? 2 : 1;
  compute.pool().parallel_for(batch.tokens.size(), [&](size_t r, int) {
    float* table = rope_tables_.as<float>() + r * 4 * half;
    const float* frequencies = inverse_freq_.as<float>();
    const auto position = static_cast<float>(positions_[r]);
    for (size_t i = 0; i < kinds * half; ++i) {
      const auto angle = static_cast<double>(position * frequencies[i]);
      const size_t at = i / half * 2 * half + i % half;
      table[at] = static_cast<float>(std::cos(angle));
      table[at + half] = static_cast<float>(std::sin(angle));
    }
  });
}

// Joins what a block computed with the residual stream.
void Model::join(const Kernels& kernels, const std::vector<float>& post_norm, size_t row) {
  float* y = y_.as<float>() + row * padded(config_.hidden);
  if (!post_norm.empty()) {
    kernels.rms_norm(y, post_norm.data(), config_.hidden, config_.norm_epsilon, y);
  }
  kernels.add(x_.as<float>() + row * config_.hidden, y, config_.hidden);
}

void Model::attention_block(Compute& compute, const Batch& batch, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const size_t rows = batch.tokens.size();
  const Kernels& kernels = compute.kernels();
  in_.shape(rows, c.hidden);
  const bool quantize = w.q.quantized() || w.k.quantized() || w.v.quantized();
  compute.pool().parallel_for(rows, [&](size_t r, int) {
    if (layer > 0) join(kernels, weights_.layers[layer - 1].post_mlp_norm, r);
    kernels.rms_norm(x_.as<float>() + r * c.hidden, w.attention_norm.data(), c.hidden,
                     c.norm_epsilon, in_.row(r));
    if (quantize) in_.quantize(kernels, r);
  });
  const Product products[] = {
      {&w.q, q_.as<float>(), padded(w.q.outputs)},
      {&w.k, k_.as<float>(), padded(w.k.outputs)},
      {&w.v, v_.as<float>(), padded(w.v.outputs)},
  };
  matmul(compute, in_, products);
  rotate_and_store(compute, batch, layer);

  in_.shape(rows, c.heads * c.head_dim);
  AttendLayer attend;
  attend.group = places_[layer].group;
  attend.layer_in_group = places_[layer].index;
  attend.heads = c.heads;
  attend.queries = q_.as<float>();
  attend.queries_stride = padded(w.q.outputs);
  attend.out = in_.row(0);
  attend.out_stride = in_.k();
  attention_->run(compute, batch.spans, attend);
  if (w.o.quantized()) {
    compute.pool().parallel_for(rows, [&](size_t r, int) { in_.quantize(kernels, r); });
  }
  const Product product = {&w.o, y_.as<float>(), padded(c.hidden)};
  matmul(compute, in_, {&product, 1});
}

// One unit of work is a row and a KV head with the query heads that share it.
void Model::rotate_and_store(Compute& compute, const Batch& batch, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const Kernels& kernels = compute.kernels();
  const size_t group = c.heads / c.kv_heads;
  const size_t half = c.rotary / 2;
  const auto rope = kernels.rope[static_cast<size_t>(c.rope_style)];
  const size_t rows = batch.tokens.size();
  const auto one_row = [&](size_t row, int) {
    const float* cosines =
        rope_tables_.as<float>() + row * 4 * half + (c.sliding[layer] ? 2 * half : 0);
    const float* sines = cosines + half;
    const Span& span = batch.spans[span_of_row_[row]];
    PagePool& pool = span.sequence->pool();
    const LayerPlace place = places_[layer];
    const size_t position = positions_[row];
    const SlabId slab = span.sequence->slab(place.group, position / kPageTokens);
    float* q_row = q_.as<float>() + row * padded(w.q.outputs);
    float* k_row = k_.as<float>() + row * padded(w.k.outputs);
    float* v_row = v_.as<float>() + row * padded(w.v.outputs);
    add_bias(w.q_bias, 0, w.q.outputs, kernels, q_row);
    add_bias(w.k_bias, 0, w.k.outputs, kernels, k_row);
    add_bias(w.v_bias, 0, w.v.outputs, kernels, v_row);
    for (size_t head = 0; head < c.kv_heads; ++head) {
      float* k = k_row + head * c.head_dim;
      if (c.qk_norm) kernels.rms_norm(k, w.k_norm.data(), c.head_dim, c.norm_epsilon, k);
      rope(k, cosines, sines, c.rotary);
      pool.store(kernels, {place.group, slab, place.index, head, position % kPageTokens}, k,
                 v_row + head * c.head_dim);
    }
    for (size_t head = 0; head < c.kv_heads * group; ++head) {
      float* q = q_row + head * c.head_dim;
      if (c.qk_norm) kernels.rms_norm(q, w.q_norm.data(), c.head_dim, c.norm_epsilon, q);
      rope(q, cosines, sines, c.rotary);
      for (size_t d = 0; d < c.head_dim; ++d) q[d] *= c.attention_scale;
    }
  };
  compute.pool().parallel_for(rows, one_row);
}

void Model::mlp_block(Compute& compute, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const Kernels& kernels = compute.kernels();
  const size_t rows = in_.rows();
  in_.shape(rows, c.hidden);
  const bool quantize = w.gate.quantized() || w.up.quantized();
  compute.pool().parallel_for(rows, [&](size_t r, int) {
    join(kernels, w.post_attention_norm, r);
    kernels.rms_norm(x_.as<float>() + r * c.hidden, w.mlp_norm.data(), c.hidden, c.norm_epsilon,
                     in_.row(r));
    if (quantize) in_.quantize(kernels, r);
  });
  const size_t stride = padded(c.feed_forward);
  const Product products[] = {{&w.gate, gate_.as<float>(), stride},
                              {&w.up, up_.as<float>(), stride}};
  matmul(compute, in_, products);
  in_.shape(rows, c.feed_forward);
  const auto multiply =
      c.activation == Activation::kSilu ? kernels.silu_multiply : kernels.gelu_multiply;
  compute.pool().parallel_for(rows, [&](size_t r, int) {
    multiply(gate_.as<float>() + r * stride, up_.as<float>() + r * stride, c.feed_forward,
             in_.row(r));
    if (w.down.quantized()) in_.quantize(kernels, r);
  });
  const Product product = {&w.down, y_.as<float>(), padded(c.hidden)};
  matmul(compute, in_, {&product, 1});
}

void Model::gather_outputs(Compute& compute, const Batch& batch) {
  const ModelConfig& c = config_;
  const Kernels& kernels = compute.kernels();
  compute.pool().parallel_for(batch.output_rows.size(), [&](size_t i, int) {
    const size_t row = batch.output_rows[i];
    join(kernels, weights_.layers.back().post_mlp_norm, row);
    kernels.rms_norm(x_.as<float>() + row * c.hidden, weights_.output_norm.data(), c.hidden,
                     c.norm_epsilon, outputs_.as<float>() + i * c.hidden);
  });
}

std::span<const float> Model::logits(Compute& compute, size_t first, size_t count) {
  CHECK(count >= 1);
  CHECK(count <= kLogitsRowsMax);
  const Kernels& kernels = compute.kernels();
  head_in_.shape(count, config_.hidden);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(head_in_.row(i), outputs_.as<float>() + (first + i) * config_.hidden,
                config_.hidden * sizeof(float));
    if (weights_.head.quantized()) head_in_.quantize(kernels, i);
  }
  const Product product = {&weights_.head, logits_.as<float>(), logits_stride()};
  matmul(compute, head_in_, {&product, 1});
  const std::span<float> all(logits_.as<float>(), count * logits_stride());
  if (config_.logit_softcap > 0.0f) {
    for (float& logit : all) {
      logit = config_.logit_softcap * std::tanh(logit / config_.logit_softcap);
    }
  }
  return all;
}

}  // namespace kvikk
