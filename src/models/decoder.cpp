// The forward pass of decoders and encoders. A layer is seven phases, each split over threads and
// ended by a barrier; phases of one row (decode) that are too small to split run on the calling
// thread:
//
//   1 x += y; n = norm(x), quantized        5 attention output quantized; y = Wo a
//   2 q, k, v = W n                         6 x += y; n = norm(x); gate, up = W n
//   3 bias, norm, rotate, store k and v     7 y = Wdown (act(gate) * up)
//   4 attend
//
// y joins x at the start of the next phase 1, so that no phase exists for the addition alone.
// Norms, biases, factors and the gate are there or not as the configuration says. Where a model
// runs attention and MLP side by side, phase 6 takes x as it is and both outputs join together.
// An encoder's keys and values are of use to its own layer alone: all layers store theirs in the
// same pages, one after the other.
//
// attention_block and mlp_block are the two places where a layer of another kind (latent attention,
// experts) branches off: each leaves its output in y_ (or z_) and the rest stays the same.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "models/model.h"
#include "weights/tensor_rows.h"

namespace kvikk {

namespace {

size_t padded(size_t n) { return (n + kPanelRows - 1) / kPanelRows * kPanelRows; }

}  // namespace

KvShape Model::kv_shape(const ModelConfig& config, KvFormat format,
                        std::shared_ptr<const KvCoder> coder) {
  KvShape shape;
  shape.format = format;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.value_dim = config.value_dim;
  shape.value_in_key = config.mla.rank > 0;
  KvGroup full;
  KvGroup sliding;
  sliding.window = config.window;
  for (size_t i = 0; i < config.layers; ++i) {
    if (config.encoder && i > 0) break;
    (config.layer[i].sliding ? sliding : full).layers.push_back(i);
  }
  if (!full.layers.empty()) shape.groups.push_back(full);
  if (!sliding.layers.empty()) shape.groups.push_back(sliding);
  if (coder == nullptr || config.mla.rank > 0) return shape;  // codes of latents: none yet
  // The groups with the exact pages come first, in the same order as without codes.
  const size_t exact = shape.groups.size();
  for (size_t g = 0; g < exact; ++g) {
    const size_t window = shape.groups[g].window;
    if (window > 0 && window <= kExactWindow) continue;
    KvGroup coded = shape.groups[g];
    coded.coded = true;
    if (window > 0) coded.take_back = kTakeBackMax;
    shape.groups[g].window = kExactWindow;
    shape.groups[g].take_back = kTakeBackMax;
    shape.groups[g].first_slabs = 1;
    shape.groups[g].coded_by = shape.groups.size();
    shape.groups.push_back(std::move(coded));
  }
  shape.coder = std::move(coder);
  return shape;
}

Result<std::unique_ptr<Model>> Model::create(std::shared_ptr<const TensorSource> source,
                                             ModelConfig config, ModelWeights weights,
                                             Compute& compute, size_t rows_max, size_t context_max,
                                             bool coded_kv) {
  std::unique_ptr<Model> model(new Model(std::move(config), std::move(weights)));
  model->source_ = std::move(source);
  model->rows_max_ = rows_max;
  const size_t learned = model->config_.learned_positions;
  const size_t positions = learned - model->config_.first_position;
  if (learned > 0 && context_max > positions) {
    return invalid_argument("a context of " + std::to_string(context_max) +
                            " tokens is more than the " + std::to_string(positions) +
                            " positions that the model has learned");
  }
  const KvShape shape = kv_shape(model->config_, KvFormat::kBF16);
  model->places_.resize(model->config_.layers);
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    for (size_t i = 0; i < shape.groups[g].layers.size(); ++i) {
      model->places_[shape.groups[g].layers[i]] = {g, i};
    }
  }
  TRY(model->allocate(compute, context_max, coded_kv));
  return model;
}

Status Model::allocate(const Compute& compute, size_t context_max, bool coded_kv) {
  const ModelConfig& c = config_;
  const size_t half = c.rotary / 2;
  const auto floats = [](size_t n) { return Buffer::allocate(n * sizeof(float)); };
  positions_.resize(rows_max_);
  span_of_row_.resize(rows_max_);
  TRY_ASSIGN(x_, floats(rows_max_ * c.hidden));
  TRY_ASSIGN(y_, floats(rows_max_ * padded(c.hidden)));
  TRY_ASSIGN(z_, floats(c.parallel ? rows_max_ * padded(c.hidden) : 0));
  if (c.mla.rank > 0) {
    TRY_ASSIGN(MlaBlock latent, MlaBlock::create(c, rows_max_));
    latent_ = std::make_unique<MlaBlock>(std::move(latent));
  } else {
    TRY_ASSIGN(q_, floats(rows_max_ * padded(c.heads * c.head_dim)));
    TRY_ASSIGN(k_, floats(rows_max_ * padded(c.kv_heads * c.head_dim)));
    TRY_ASSIGN(v_, floats(rows_max_ * padded(c.kv_heads * c.value_dim)));
  }
  if (c.moe.experts > 0) {
    TRY_ASSIGN(MoeBlock moe, MoeBlock::create(c, rows_max_));
    moe_ = std::make_unique<MoeBlock>(std::move(moe));
  }
  TRY_ASSIGN(gate_, floats(rows_max_ * padded(c.feed_forward)));
  TRY_ASSIGN(up_, floats(rows_max_ * padded(c.feed_forward)));
  TRY_ASSIGN(rope_tables_, floats(rows_max_ * 4 * half));
  TRY_ASSIGN(inverse_freq_, floats(2 * half));
  TRY_ASSIGN(outputs_, floats(rows_max_ * c.hidden));
  TRY_ASSIGN(logits_, floats(kLogitsRowsMax * logits_stride()));
  TRY_ASSIGN(ones_, floats(c.feed_forward));
  std::fill_n(ones_.as<float>(), c.feed_forward, 1.0f);
  TRY_ASSIGN(in_, Activations::allocate(rows_max_, c.widest()));
  TRY_ASSIGN(head_in_, Activations::allocate(kLogitsRowsMax, c.hidden));
  const int threads = compute.threads();
  TRY_ASSIGN(Attention attention,
             Attention::create(threads, c.heads, c.kv_heads, std::max(c.head_dim, c.value_dim),
                               context_max, coded_kv ? attend_dim_max(c, true) : 0));
  attention_ = std::make_unique<Attention>(std::move(attention));
  fill_inverse_frequencies(c.rope, c.rotary, context_max, inverse_freq_.as<float>());
  fill_inverse_frequencies(c.rope_sliding, c.rotary, context_max, inverse_freq_.as<float>() + half);
  return ok_status();
}

void Model::forward(Compute& compute, const Batch& batch) {
  CHECK(!batch.tokens.empty());
  CHECK(batch.tokens.size() <= rows_max_);
  size_t row = 0;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const Span& span = batch.spans[s];
    CHECK(span.first_row == row);
    CHECK(!config_.encoder || span.first_position == 0);
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
  const size_t hidden = config_.hidden;
  compute.pool().label("embedding");
  compute.for_rows(batch.tokens.size(), [&](size_t r, int) {
    float* x = x_.as<float>() + r * hidden;
    fetch_row(*weights_.source, *weights_.embedding, static_cast<size_t>(batch.tokens[r]), x);
    scale_row(config_.embedding_scale, hidden, x);
    add_vector(compute.kernels(), weights_.token_type, x);
    if (weights_.positions != nullptr) {
      float* position = y_.as<float>() + r * padded(hidden);  // free until the first block
      fetch_row(*weights_.source, *weights_.positions, config_.first_position + positions_[r],
                position);
      compute.kernels().add(x, position, hidden);
    }
    normalize(compute.kernels(), config_, weights_.embedding_norm, x, hidden, x);
  });
}

void Model::fill_rope_tables(Compute& compute, const Batch& batch) {
  const size_t half = config_.rotary / 2;
  const size_t kinds = config_.window > 0 ? 2 : 1;
  compute.pool().label("rotation tables");
  compute.for_rows(batch.tokens.size(), [&](size_t r, int) {
    float* table = rope_tables_.as<float>() + r * 4 * half;
    const float* frequencies = inverse_freq_.as<float>();
    const auto position = static_cast<float>(positions_[r]);
    for (size_t i = 0; i < kinds * half; ++i) {
      const auto angle = static_cast<double>(position * frequencies[i]);
      const float factor = (i < half ? config_.rope : config_.rope_sliding).attention_factor;
      const size_t at = i / half * 2 * half + i % half;
      table[at] = static_cast<float>(std::cos(angle)) * factor;
      table[at + half] = static_cast<float>(std::sin(angle)) * factor;
    }
  });
}

// Joins what a block computed with the residual stream. `last` is the block's last matrix.
void Model::join(const Kernels& kernels, const Linear& last, const NormWeights& post_norm, float* y,
                 size_t row) {
  const size_t n = config_.hidden;
  float* x = x_.as<float>() + row * n;
  add_vector(kernels, last.bias, y);
  if (!config_.norm_of_sum) normalize(kernels, config_, post_norm, y, n, y);
  scale_row(config_.residual_scale, n, y);
  kernels.add(x, y, n);
  if (config_.norm_of_sum) normalize(kernels, config_, post_norm, x, n, x);
}

void Model::join_attention(const Kernels& kernels, size_t layer, size_t row) {
  const LayerWeights& w = weights_.layers[layer];
  float* y = y_.as<float>() + row * padded(config_.hidden);
  join(kernels, w.o, w.post_attention_norm, y, row);
}

// What is left to join when all of a layer has been computed.
void Model::join_layer(const Kernels& kernels, size_t layer, size_t row) {
  const LayerWeights& w = weights_.layers[layer];
  if (config_.parallel) join_attention(kernels, layer, row);
  float* y = (config_.parallel ? z_ : y_).as<float>() + row * padded(config_.hidden);
  join(kernels, w.down, w.post_mlp_norm, y, row);
}

void Model::attention_block(Compute& compute, const Batch& batch, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const size_t rows = batch.tokens.size();
  const Kernels& kernels = compute.kernels();
  const Matrix& q = w.q.matrix;
  in_.shape(rows, c.hidden);
  const bool quantize = w.mla != nullptr
                            ? w.mla->reads_quantized()
                            : q.quantized() || w.k.matrix.quantized() || w.v.matrix.quantized();
  compute.pool().label("attention norm");
  compute.for_rows(rows, [&](size_t r, int) {
    if (layer > 0) join_layer(kernels, layer - 1, r);
    normalize(kernels, c, w.attention_norm, x_.as<float>() + r * c.hidden, c.hidden, in_.row(r));
    if (quantize) in_.quantize(kernels, r);
  });
  if (w.mla != nullptr) {
    latent_attention(compute, batch, layer);
    return;
  }
  const Product products[] = {
      {&q, q_.as<float>(), padded(q.outputs)},
      {&w.k.matrix, k_.as<float>(), padded(w.k.matrix.outputs)},
      {&w.v.matrix, v_.as<float>(), padded(w.v.matrix.outputs)},
  };
  compute.pool().label("q, k, v");
  matmul(compute, in_, products);
  compute.pool().label("rotate and store");
  rotate_and_store(compute, batch, layer);
  seal_pages(compute, batch, layer);
  if (query_observer_) query_observer_(batch, layer, q_.as<float>(), padded(q.outputs));

  in_.shape(rows, c.heads * c.value_dim);
  attend(compute, batch, layer, q_.as<float>(), padded(q.outputs), in_.row(0), in_.k());
  if (w.o.matrix.quantized()) {
    compute.for_rows(rows, [&](size_t r, int) { in_.quantize(kernels, r); });
  }
  const Product product = {&w.o.matrix, y_.as<float>(), padded(c.hidden)};
  matmul(compute, in_, {&product, 1});
}

void Model::attend(Compute& compute, const Batch& batch, size_t layer, const float* queries,
                   size_t queries_stride, float* out, size_t out_stride) {
  const std::vector<float>& sinks = weights_.layers[layer].sinks;
  AttendLayer attend;
  attend.group = places_[layer].group;
  attend.layer_in_group = places_[layer].index;
  attend.heads = config_.heads;
  attend.queries = queries;
  attend.queries_stride = queries_stride;
  attend.out = out;
  attend.out_stride = out_stride;
  attend.softcap = config_.attention_softcap;
  attend.whole_span = config_.encoder;
  attend.sinks = sinks.empty() ? nullptr : sinks.data();
  compute.pool().label("attention");
  attention_->run(compute, batch.spans, attend);
  compute.pool().label("attention output");
}

// See mla.h.
void Model::latent_attention(Compute& compute, const Batch& batch, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const Kernels& kernels = compute.kernels();
  const size_t rows = batch.tokens.size();
  const size_t table_floats = 4 * (c.rotary / 2);
  MlaBlock& latent = *latent_;
  latent.project(compute, c, *w.mla, in_, rope_tables_.as<float>(), table_floats);
  compute.for_rows(rows, [&](size_t r, int) {
    const Span& span = batch.spans[span_of_row_[r]];
    const LayerPlace place = places_[layer];
    const size_t page = positions_[r] / kPageTokens;
    span.sequence->pool().store(kernels,
                                {place.group, span.sequence->slab(place.group, page), place.index,
                                 0, positions_[r] % kPageTokens},
                                latent.key(r), nullptr);
  });
  attend(compute, batch, layer, latent.queries(), latent.queries_stride(), latent.attended(),
         latent.attended_stride());
  in_.shape(rows, c.heads * c.mla.value);
  latent.values(compute, c, *w.mla, in_);
  if (w.o.matrix.quantized()) {
    compute.for_rows(rows, [&](size_t r, int) { in_.quantize(kernels, r); });
  }
  const Product product = {&w.o.matrix, y_.as<float>(), padded(c.hidden)};
  matmul(compute, in_, {&product, 1});
}

// Norm and rotation of the heads of a row of q or k.
void Model::finish_heads(const Kernels& kernels, const LayerConfig& layer, const NormWeights& norm,
                         const float* rope_table, size_t heads, float* row) {
  const ModelConfig& c = config_;
  const auto rope = kernels.rope[static_cast<size_t>(c.rope_style)];
  const bool together = c.qk_norm == QkNorm::kAllHeads;
  if (together) normalize(kernels, c, norm, row, heads * c.head_dim, row);
  for (size_t h = 0; h < heads; ++h) {
    float* head = row + h * c.head_dim;
    const size_t weight_at = c.qk_norm == QkNorm::kEachHead ? h * c.head_dim : 0;
    const auto norm_head = [&] {
      if (!together) normalize(kernels, c, norm, head, c.head_dim, head, weight_at);
    };
    if (!c.qk_norm_after_rope) norm_head();
    if (layer.rotates) rope(head, rope_table, rope_table + c.rotary / 2, c.rotary);
    if (c.qk_norm_after_rope) norm_head();
  }
}

// Pages whose last token this step has stored become codes, where the cache has them.
void Model::seal_pages(Compute& compute, const Batch& batch, size_t layer) {
  const LayerPlace place = places_[layer];
  for (const Span& span : batch.spans) {
    PagePool& pool = span.sequence->pool();
    const size_t coded = pool.shape().groups[place.group].coded_by;
    if (coded == kNoGroup) continue;
    const size_t first = span.first_position / kPageTokens;
    const size_t pages = (span.first_position + span.rows) / kPageTokens - first;
    const size_t heads = config_.kv_heads;
    compute.pool().parallel_for(pages * heads, [&](size_t i, int) {
      const size_t page = first + i / heads;
      const size_t head = i % heads;
      pool.shape().coder->seal(
          pool.shape().format,
          pool.page(place.group, span.sequence->slab(place.group, page), place.index, head), layer,
          head, page, pool.page(coded, span.sequence->slab(coded, page), place.index, head));
    });
  }
}

// One unit of work is a row.
void Model::rotate_and_store(Compute& compute, const Batch& batch, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const Kernels& kernels = compute.kernels();
  const size_t table_floats = 4 * (c.rotary / 2);
  const auto one_row = [&](size_t row, int) {
    const float* table = rope_tables_.as<float>() + row * table_floats +
                         (c.layer[layer].sliding ? table_floats / 2 : 0);
    const Span& span = batch.spans[span_of_row_[row]];
    PagePool& pool = span.sequence->pool();
    const LayerPlace place = places_[layer];
    const size_t position = positions_[row];
    const SlabId slab = span.sequence->slab(place.group, position / kPageTokens);
    float* q = q_.as<float>() + row * padded(w.q.matrix.outputs);
    float* k = k_.as<float>() + row * padded(w.k.matrix.outputs);
    float* v = v_.as<float>() + row * padded(w.v.matrix.outputs);
    add_vector(kernels, w.q.bias, q);
    add_vector(kernels, w.k.bias, k);
    add_vector(kernels, w.v.bias, v);
    finish_heads(kernels, c.layer[layer], w.k_norm, table, c.kv_heads, k);
    for (size_t head = 0; head < c.kv_heads; ++head) {
      pool.store(kernels, {place.group, slab, place.index, head, position % kPageTokens},
                 k + head * c.head_dim, v + head * c.value_dim);
    }
    finish_heads(kernels, c.layer[layer], w.q_norm, table, c.heads, q);
    scale_row(c.attention_scale, c.heads * c.head_dim, q);
  };
  compute.for_rows(batch.tokens.size(), one_row);
}

void Model::mlp_block(Compute& compute, size_t layer) {
  const ModelConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const Kernels& kernels = compute.kernels();
  const size_t rows = in_.rows();
  in_.shape(rows, c.hidden);
  const bool quantize = w.moe != nullptr
                            ? MoeBlock::reads_quantized(*w.moe)
                            : w.up.matrix.quantized() || (c.gated_mlp && w.gate.matrix.quantized());
  compute.pool().label("mlp norm");
  compute.for_rows(rows, [&](size_t r, int) {
    if (!c.parallel) join_attention(kernels, layer, r);
    normalize(kernels, c, w.mlp_norm, x_.as<float>() + r * c.hidden, c.hidden, in_.row(r));
    if (quantize) in_.quantize(kernels, r);
  });
  Buffer& out = c.parallel ? z_ : y_;
  if (w.moe != nullptr) {
    moe_->run(compute, c, *w.moe, in_, out.as<float>(), padded(c.hidden));
    return;
  }
  const size_t stride = padded(c.feed_forward);
  const Product products[] = {{&w.up.matrix, up_.as<float>(), stride},
                              {&w.gate.matrix, gate_.as<float>(), stride}};
  compute.pool().label("gate, up");
  matmul(compute, in_, std::span(products).first(c.gated_mlp ? 2 : 1));
  in_.shape(rows, c.feed_forward);
  compute.pool().label("activation");
  compute.for_rows(rows, [&](size_t r, int) {
    float* gate = gate_.as<float>() + r * stride;
    float* up = up_.as<float>() + r * stride;
    add_vector(kernels, w.up.bias, up);
    if (c.gated_mlp) {
      add_vector(kernels, w.gate.bias, gate);
      activate_multiply(kernels, c.activation, gate, up, c.feed_forward, in_.row(r));
    } else {
      activate_multiply(kernels, c.activation, up, ones_.as<float>(), c.feed_forward, in_.row(r));
    }
    if (w.down.matrix.quantized()) in_.quantize(kernels, r);
  });
  const Product product = {&w.down.matrix, out.as<float>(), padded(c.hidden)};
  compute.pool().label("down");
  matmul(compute, in_, {&product, 1});
}

void Model::gather_outputs(Compute& compute, const Batch& batch) {
  const ModelConfig& c = config_;
  const Kernels& kernels = compute.kernels();
  compute.pool().label("output norm");
  compute.pool().parallel_for(batch.output_rows.size(), [&](size_t i, int) {
    const size_t row = batch.output_rows[i];
    join_layer(kernels, c.layers - 1, row);
    normalize(kernels, c, weights_.output_norm, x_.as<float>() + row * c.hidden, c.hidden,
              outputs_.as<float>() + i * c.hidden);
  });
}

std::span<const float> Model::logits(Compute& compute, size_t first, size_t count, size_t top) {
  CHECK(count >= 1);
  CHECK(count <= kLogitsRowsMax);
  const Kernels& kernels = compute.kernels();
  const Matrix& head = weights_.head.matrix;
  head_in_.shape(count, config_.hidden);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(head_in_.row(i), outputs_.as<float>() + (first + i) * config_.hidden,
                config_.hidden * sizeof(float));
    if (head.quantized()) head_in_.quantize(kernels, i);
  }
  compute.pool().label("head");
  weights_.output.run(compute, head_in_, top, logits_.as<float>(), logits_stride());
  const std::span<float> all(logits_.as<float>(), count * logits_stride());
  for (size_t i = 0; i < count; ++i) {
    add_vector(kernels, weights_.head.bias, all.data() + i * logits_stride());
  }
  scale_row(config_.logit_scale, all.size(), all.data());
  if (config_.logit_softcap > 0.0f) {
    for (float& logit : all) {
      if (std::isinf(logit)) continue;  // left out
      logit = config_.logit_softcap * std::tanh(logit / config_.logit_softcap);
    }
  }
  return all;
}

}  // namespace kvikk
