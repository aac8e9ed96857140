#include "models/kv_coding.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kv/fitted_basis.h"

namespace kvikk {

namespace {

// Kinds of rotary embedding: of full layers, of sliding ones, none.
std::vector<KvRope> kv_ropes(const ModelConfig& config, size_t context) {
  std::vector<KvRope> ropes(3);
  for (KvRope& rope : ropes) rope.style = config.rope_style;
  for (size_t kind = 0; kind < 2; ++kind) {
    ropes[kind].frequencies.resize(config.rotary / 2);
    fill_inverse_frequencies(kind == 0 ? config.rope : config.rope_sliding, config.rotary, context,
                             ropes[kind].frequencies.data());
  }
  return ropes;
}

size_t rope_kind(const LayerConfig& layer) {
  if (!layer.rotates) return 2;
  return layer.sliding ? 1 : 0;
}

bool has_key_bias(const ModelWeights& weights) {
  return std::any_of(weights.layers.begin(), weights.layers.end(),
                     [](const LayerWeights& layer) { return !layer.k.bias.empty(); });
}

// Turns a key back by the angles of its position.
void unrotate(const KvRope& rope, size_t position, float* key) {
  const size_t pairs = rope.frequencies.size();
  for (size_t i = 0; i < pairs; ++i) {
    const auto [a, b] = rotary_pair(rope.style, i, pairs);
    const double angle = static_cast<double>(position) * static_cast<double>(rope.frequencies[i]);
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float x = key[a];
    key[a] = x * cosine + key[b] * sine;
    key[b] = key[b] * cosine - x * sine;
  }
}

void rotate(const KvRope& rope, size_t position, float* key) {
  const size_t pairs = rope.frequencies.size();
  for (size_t i = 0; i < pairs; ++i) {
    const auto [a, b] = rotary_pair(rope.style, i, pairs);
    const double angle = static_cast<double>(position) * static_cast<double>(rope.frequencies[i]);
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float x = key[a];
    key[a] = x * cosine - key[b] * sine;
    key[b] = key[b] * cosine + x * sine;
  }
}

std::vector<float> mean_of(const std::vector<float>& keys, size_t size) {
  std::vector<double> sum(size);
  for (size_t i = 0; i < keys.size(); ++i) sum[i % size] += static_cast<double>(keys[i]);
  std::vector<float> mean(size);
  const double count = static_cast<double>(keys.size() / size);
  for (size_t d = 0; d < size; ++d) mean[d] = static_cast<float>(sum[d] / count);
  return mean;
}

// Each pair of the position term costs time with every page. The ones that matter least go without
// it: together they add this much to the energy of the balanced keys, and so to their error.
constexpr double kLeftEnergy = 0.05;

// before: keys [tokens, size] from before the rotary embedding; query_squares [size], sums.
void drop_small_pairs(const KvRope& rope, const std::vector<float>& before,
                      const std::vector<double>& query_squares, std::vector<float>& rope_mean) {
  const size_t size = rope_mean.size();
  const size_t pairs = rope.frequencies.size();
  struct Pair {
    double energy;  // of the mean
    size_t a, b;
  };
  std::vector<Pair> all;
  double total = 0;  // energy of the keys without their mean
  for (size_t i = 0; i < pairs; ++i) {
    const auto [a, b] = rotary_pair(rope.style, i, pairs);
    double spread = 0;
    for (size_t at = 0; at < before.size(); at += size) {
      const double x = static_cast<double>(before[at + a] - rope_mean[a]);
      const double y = static_cast<double>(before[at + b] - rope_mean[b]);
      spread += x * x + y * y;
    }
    spread /= static_cast<double>(before.size() / size);
    const double x = static_cast<double>(rope_mean[a]);
    const double y = static_cast<double>(rope_mean[b]);
    // Balanced keys are divided by (spread / query)^(1/4).
    const double query = query_squares[a] + query_squares[b];
    const double weight = spread > 0 ? std::sqrt(query / spread) : 0;
    total += spread * weight;
    all.push_back({(x * x + y * y) * weight, a, b});
  }
  std::sort(all.begin(), all.end(),
            [](const Pair& x, const Pair& y) { return x.energy < y.energy; });
  double left = 0;
  for (const Pair& pair : all) {
    left += pair.energy;
    if (!(left <= kLeftEnergy * total)) return;
    rope_mean[pair.a] = rope_mean[pair.b] = 0.0f;
  }
}

// (E k^2 / E q^2)^(1/4), equal within a rotary pair: what makes the product of the errors of
// queries and keys least. Dims that no query uses keep a finite weight.
std::vector<float> balance_of(const KvRope& rope, const std::vector<double>& key_squares,
                              const std::vector<double>& query_squares) {
  const size_t size = key_squares.size();
  const size_t pairs = rope.frequencies.size();
  std::vector<double> k = key_squares;
  std::vector<double> q = query_squares;
  for (size_t i = 0; i < pairs; ++i) {
    const auto [a, b] = rotary_pair(rope.style, i, pairs);
    k[a] = k[b] = (k[a] + k[b]) / 2;
    q[a] = q[b] = (q[a] + q[b]) / 2;
  }
  double k_sum = 0;
  double q_sum = 0;
  for (size_t d = 0; d < size; ++d) {
    k_sum += k[d];
    q_sum += q[d];
  }
  if (!(k_sum > 0) || !(q_sum > 0) || !std::isfinite(k_sum) || !std::isfinite(q_sum)) return {};
  constexpr double kSmallest = 1e-6;  // of the mean
  const double n = static_cast<double>(size);
  std::vector<float> balance(size);
  for (size_t d = 0; d < size; ++d) {
    const double ratio =
        std::max(k[d] / k_sum, kSmallest / n) / std::max(q[d] / q_sum, kSmallest / n);
    balance[d] = static_cast<float>(std::pow(ratio, 0.25));
  }
  return balance;
}

// Every how many positions the products of a query's dims are summed.
constexpr size_t kMomentStride = 2;

// What a run of the model leaves behind.
struct Measured {
  bool products = false;                           // whether query_moments are wanted
  std::vector<std::vector<double>> query_squares;  // [layers x kv_heads][head_dim], sums
  std::vector<std::vector<double>> query_moments;  // [layers x kv_heads][head_dim, head_dim], sums
};

// The fitted basis of keys [tokens, size]; only the lower half of query_moments is filled in.
void fit_keys(const std::vector<float>& keys, const std::vector<float>& mean,
              std::vector<double>& query_moments, uint32_t bits, KeyConditioning& out) {
  const size_t size = mean.size();
  std::vector<double> covariance(size * size);
  std::vector<double> x(size);
  for (size_t at = 0; at < keys.size(); at += size) {
    for (size_t d = 0; d < size; ++d) x[d] = static_cast<double>(keys[at + d] - mean[d]);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j <= i; ++j) covariance[i * size + j] += x[i] * x[j];
    }
  }
  const double count = static_cast<double>(keys.size() / size);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      covariance[i * size + j] /= count;
      covariance[j * size + i] = covariance[i * size + j];
      query_moments[j * size + i] = query_moments[i * size + j];
    }
  }
  for (const auto* matrix : {&covariance, &query_moments}) {
    for (double value : *matrix) {
      if (!std::isfinite(value)) return;  // the caller refuses such a mean
    }
  }
  fit_basis(query_moments, covariance, size, bits, out);
}

Status run_text(Model& model, Compute& compute, std::span<const TokenId> tokens, SequenceKv& kv,
                Measured& measured) {
  const ModelConfig& config = model.config();
  const size_t group_heads = config.heads / config.kv_heads;
  const size_t size = config.head_dim;
  measured.query_squares.assign(config.layers * config.kv_heads, std::vector<double>(size));
  measured.query_moments.assign(config.layers * config.kv_heads,
                                std::vector<double>(measured.products ? size * size : 0));
  model.observe_queries([&](const Batch& batch, size_t layer, const float* queries, size_t stride) {
    for (size_t row = 0; row < batch.tokens.size(); ++row) {
      if (batch.spans[0].first_position + row < kSinkTokens) continue;
      for (size_t head = 0; head < config.heads; ++head) {
        const float* q = queries + row * stride + head * size;
        std::vector<double>& sums =
            measured.query_squares[layer * config.kv_heads + head / group_heads];
        for (size_t d = 0; d < size; ++d) sums[d] += static_cast<double>(q[d]) * q[d];
      }
    }
    if (!measured.products) return;
    compute.pool().parallel_for(config.kv_heads, [&](size_t kv_head, int) {
      double* sums = measured.query_moments[layer * config.kv_heads + kv_head].data();
      for (size_t row = 0; row < batch.tokens.size(); ++row) {
        const size_t position = batch.spans[0].first_position + row;
        if (position < kSinkTokens || position % kMomentStride != 0) continue;
        for (size_t h = 0; h < group_heads; ++h) {
          const float* q = queries + row * stride + (kv_head * group_heads + h) * size;
          for (size_t i = 0; i < size; ++i) {
            const double qi = static_cast<double>(q[i]);
            for (size_t j = 0; j <= i; ++j) sums[i * size + j] += qi * static_cast<double>(q[j]);
          }
        }
      }
    });
  });
  Status status;
  for (size_t first = 0; first < tokens.size() && status.ok();) {
    const size_t rows = std::min(model.rows_max(), tokens.size() - first);
    status = kv.reserve(rows);
    if (!status.ok()) break;
    Batch batch;
    batch.tokens.assign(tokens.begin() + static_cast<long>(first),
                        tokens.begin() + static_cast<long>(first + rows));
    batch.spans.push_back({&kv, 0, rows, first});
    batch.output_rows.push_back(static_cast<uint32_t>(rows - 1));
    model.forward(compute, batch);
    kv.advance(rows);
    first += rows;
  }
  model.observe_queries({});
  return status;
}

}  // namespace

std::vector<KeyConditioning> bias_conditioning(const ModelConfig& config,
                                               const ModelWeights& weights) {
  std::vector<KeyConditioning> all;
  if (!has_key_bias(weights)) return all;
  const size_t size = config.head_dim;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const std::vector<float>& bias = weights.layers[layer].k.bias;
    const LayerConfig& kind = config.layer[layer];
    const float factor = (kind.sliding ? config.rope_sliding : config.rope).attention_factor;
    for (size_t head = 0; head < config.kv_heads; ++head) {
      KeyConditioning c;
      // A norm after the bias makes something else of it.
      if (!bias.empty() && weights.layers[layer].k_norm.empty() && kind.rotates) {
        c.rope_mean.assign(size, 0.0f);
        c.mean.assign(size, 0.0f);
        std::vector<bool> rotates(size);
        for (size_t i = 0; i < config.rotary / 2; ++i) {
          const auto [a, b] = rotary_pair(config.rope_style, i, config.rotary / 2);
          rotates[a] = rotates[b] = true;
        }
        for (size_t d = 0; d < size; ++d) {
          const float value = bias[head * size + d];
          (rotates[d] ? c.rope_mean : c.mean)[d] = rotates[d] ? value * factor : value;
        }
      }
      all.push_back(std::move(c));
    }
  }
  return all;
}

Result<std::vector<KeyConditioning>> calibrate_keys(Model& model, Compute& compute,
                                                    std::span<const TokenId> tokens,
                                                    const KvChoice& choice, size_t context) {
  const ModelConfig& config = model.config();
  const KvShape shape = Model::kv_shape(config, choice.exact);
  const std::vector<size_t> slabs(shape.groups.size(), tokens.size() / kPageTokens + 1);
  TRY_ASSIGN(PagePool pool, PagePool::create(shape, slabs));
  SequenceKv kv(pool);
  Measured measured;
  measured.products = choice.keys->coding == KvCoding::kFitted;
  TRY(run_text(model, compute, tokens, kv, measured));

  const std::vector<KvRope> ropes = kv_ropes(config, context);
  const bool position_term = has_key_bias(model.weights());
  std::vector<KeyConditioning> all(config.layers * config.kv_heads);
  const size_t size = config.head_dim;
  compute.pool().parallel_for(all.size(), [&](size_t i, int) {
    const size_t layer = i / config.kv_heads;
    const KvRope& rope = ropes[rope_kind(config.layer[layer])];
    size_t group = 0;
    size_t index = 0;
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      const auto& layers = shape.groups[g].layers;
      const auto found = std::find(layers.begin(), layers.end(), layer);
      if (found == layers.end()) continue;
      group = g;
      index = static_cast<size_t>(found - layers.begin());
    }
    std::vector<float> keys((tokens.size() - kSinkTokens) * size);
    for (size_t t = kSinkTokens; t < tokens.size(); ++t) {
      load_exact_key(pool.page(group, kv.slab(group, t / kPageTokens), index, i % config.kv_heads),
                     choice.exact, t % kPageTokens, size, shape.key_width(),
                     &keys[(t - kSinkTokens) * size]);
    }
    KeyConditioning& c = all[i];
    if (position_term && !rope.frequencies.empty()) {
      std::vector<float> before = keys;
      for (size_t t = kSinkTokens; t < tokens.size(); ++t) {
        unrotate(rope, t, &before[(t - kSinkTokens) * size]);
      }
      c.rope_mean = mean_of(before, size);
      std::vector<bool> rotates(size);
      for (size_t p = 0; p < rope.frequencies.size(); ++p) {
        const auto [a, b] = rotary_pair(rope.style, p, rope.frequencies.size());
        rotates[a] = rotates[b] = true;
      }
      for (size_t d = 0; d < size; ++d) {
        if (!rotates[d]) c.rope_mean[d] = 0.0f;
      }
      drop_small_pairs(rope, before, measured.query_squares[i], c.rope_mean);
      for (size_t t = kSinkTokens; t < tokens.size(); ++t) {
        std::vector<float> image = c.rope_mean;
        rotate(rope, t, image.data());
        for (size_t d = 0; d < size; ++d) keys[(t - kSinkTokens) * size + d] -= image[d];
      }
    }
    c.mean = mean_of(keys, size);
    std::vector<double> squares(size);
    for (size_t k = 0; k < keys.size(); ++k) {
      const double x = static_cast<double>(keys[k]) - c.mean[k % size];
      squares[k % size] += x * x;
    }
    if (measured.products) {
      fit_keys(keys, c.mean, measured.query_moments[i], choice.keys->bits, c);
    } else {
      c.balance = balance_of(rope, squares, measured.query_squares[i]);
    }
  });
  for (const KeyConditioning& c : all) {
    for (const auto* part : {&c.rope_mean, &c.mean, &c.balance}) {
      for (float value : *part) {
        if (!std::isfinite(value)) return damaged("the keys of the model are not finite");
      }
    }
  }
  return all;
}

Result<std::shared_ptr<const KvCoder>> make_kv_coder(const ModelConfig& config,
                                                     const KvChoice& choice, size_t context) {
  if (config.mla.rank > 0 || config.value_dim != config.head_dim) {
    return unsupported("kv '" + choice.name() +
                       "': caches whose values differ from their keys in " +
                       "size are not coded yet; this model needs bf16 or f32");
  }
  KvCoderOptions options;
  options.choice = choice;
  options.head_dim = config.head_dim;
  options.layers = config.layers;
  options.kv_heads = config.kv_heads;
  options.context = context;
  options.ropes = kv_ropes(config, context);
  for (const LayerConfig& layer : config.layer) options.rope_of.push_back(rope_kind(layer));
  return KvCoder::create(std::move(options));
}

}  // namespace kvikk
