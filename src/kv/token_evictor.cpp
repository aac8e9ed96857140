#include "kv/token_evictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "kv/coder.h"

namespace kvikk {

TokenEvictor::TokenEvictor(KvEviction kind, size_t layers, size_t heads)
    : kind_(kind), layers_(layers), heads_(heads) {
  CHECK(kind != KvEviction::kNone);
}

void TokenEvictor::observe(std::span<const Span> spans, size_t layer, const float* queries,
                           size_t stride) {
  if (kind_ == KvEviction::kStreaming) return;
  for (const Span& span : spans) {
    if (span.sequence->evicted()) continue;
    const size_t width = heads_ * span.sequence->pool().shape().head_dim;
    std::vector<Newest>& layers = seen_[span.sequence];
    layers.resize(layers_);
    Newest& newest = layers[layer];
    newest.queries.resize(kWindow * width);
    if (newest.end != span.first_position) newest.begin = span.first_position;
    newest.end = span.first_position + span.rows;
    newest.begin = std::max(newest.begin, newest.end - std::min(newest.end, kWindow));
    for (size_t r = span.rows - std::min(span.rows, kWindow); r < span.rows; ++r) {
      const size_t position = span.first_position + r;
      std::copy_n(queries + (span.first_row + r) * stride, width,
                  newest.queries.data() + position % kWindow * width);
    }
  }
}

size_t TokenEvictor::budget(size_t tokens, size_t layer) const {
  const size_t average = std::max(tokens / kEvictionKeepsOneIn, 2 * kWindow);
  if (tokens <= average) return tokens;
  if (kind_ != KvEviction::kPyramid || layers_ < 2) return average;
  const size_t chosen = average - kWindow;  // besides the newest
  size_t least = chosen / kPyramidSteepness;
  const size_t most = std::min(2 * chosen - least, tokens - kWindow);
  least = 2 * chosen - most;
  return most - (most - least) * layer / (layers_ - 1) + kWindow;
}

std::vector<float> TokenEvictor::attention(SequenceKv& sequence, size_t group,
                                           size_t layer_in_group, size_t kv_head,
                                           const Newest& newest) const {
  PagePool& pool = sequence.pool();
  const KvShape& shape = pool.shape();
  const size_t tokens = sequence.length();
  const size_t dim = shape.head_dim;
  const size_t group_heads = heads_ / shape.kv_heads;
  const size_t rows = (newest.end - newest.begin) * group_heads;
  std::vector<float> scores(rows * tokens, 0.0f);
  std::vector<float> key(dim);
  std::vector<float> keys(dim * kPageTokens);  // [dim][64 tokens]
  const auto query_of = [&](size_t row) {
    const size_t position = newest.begin + row / group_heads;
    const size_t head = kv_head * group_heads + row % group_heads;
    return newest.queries.data() + (position % kWindow * heads_ + head) * dim;
  };
  for (size_t first = 0; first < tokens; first += kPageTokens) {
    const size_t count = std::min(kPageTokens, tokens - first);
    const uint8_t* page =
        pool.page(group, sequence.slab(group, first / kPageTokens), layer_in_group, kv_head);
    for (size_t t = 0; t < count; ++t) {
      load_exact_key(page, shape.format, t, dim, shape.key_width(), key.data());
      for (size_t d = 0; d < dim; ++d) keys[d * kPageTokens + t] = key[d];
    }
    for (size_t row = 0; row < rows; ++row) {
      const float* query = query_of(row);
      float* out = scores.data() + row * tokens + first;
      for (size_t d = 0; d < dim; ++d) {
        for (size_t t = 0; t < count; ++t) out[t] += query[d] * keys[d * kPageTokens + t];
      }
    }
  }
  std::vector<float> sum(tokens, 0.0f);
  for (size_t row = 0; row < rows; ++row) {
    float* score = scores.data() + row * tokens;
    const size_t visible = newest.begin + row / group_heads + 1;
    const float max = *std::max_element(score, score + visible);
    double total = 0.0;
    for (size_t t = 0; t < visible; ++t) {
      score[t] = std::exp(score[t] - max);
      total += static_cast<double>(score[t]);
    }
    const auto share = static_cast<float>(1.0 / total);
    for (size_t t = 0; t < visible; ++t) sum[t] += score[t] * share;
  }
  return sum;
}

std::vector<uint32_t> TokenEvictor::choose_head(SequenceKv& sequence, size_t group,
                                                size_t layer_in_group, size_t kv_head,
                                                const Newest& newest) const {
  const size_t tokens = sequence.length();
  const size_t layer = sequence.pool().shape().groups[group].layers[layer_in_group];
  const size_t kept = budget(tokens, layer);
  std::vector<uint32_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), 0u);
  if (kept == tokens) return positions;
  if (kind_ == KvEviction::kStreaming) {
    positions.erase(positions.begin() + kSinks, positions.end() - static_cast<long>(kept - kSinks));
    return positions;
  }
  const std::vector<float> weights = attention(sequence, group, layer_in_group, kv_head, newest);
  const size_t old = tokens - kWindow;
  std::vector<double> before(old + 1, 0.0);  // sums of weights
  for (size_t t = 0; t < old; ++t) before[t + 1] = before[t] + static_cast<double>(weights[t]);
  const auto pooled = [&](size_t t) {
    const size_t from = t - std::min(t, kPooled / 2);
    return before[std::min(old, t + kPooled / 2 + 1)] - before[from];
  };
  const auto chosen = static_cast<long>(kept - kWindow);
  std::nth_element(positions.begin(), positions.begin() + chosen,
                   positions.begin() + static_cast<long>(old), [&](uint32_t a, uint32_t b) {
                     const double left = pooled(a);
                     const double right = pooled(b);
                     return left != right ? left > right : a < b;
                   });
  positions.erase(positions.begin() + chosen, positions.begin() + static_cast<long>(old));
  std::sort(positions.begin(), positions.end());
  return positions;
}

KeptTokens TokenEvictor::choose(Compute& compute, SequenceKv& sequence) {
  const KvShape& shape = sequence.pool().shape();
  std::vector<Newest> newest(layers_);
  if (const auto found = seen_.find(&sequence); found != seen_.end()) {
    newest = std::move(found->second);
    seen_.erase(found);
  }
  KeptTokens kept;
  kept.groups.resize(shape.groups.size());
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    if (shape.groups[g].window > 0) continue;  // sees little anyway
    kept.groups[g].resize(shape.groups[g].layers.size() * shape.kv_heads);
    compute.pool().parallel_for(kept.groups[g].size(), [&](size_t i, int) {
      const size_t layer = i / shape.kv_heads;
      kept.groups[g][i] = choose_head(sequence, g, layer, i % shape.kv_heads,
                                      newest[shape.groups[g].layers[layer]]);
    });
  }
  return kept;
}

}  // namespace kvikk
