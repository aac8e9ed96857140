// Attention over a sequence's cache against a float64 softmax: head sizes that need padding, keys
// and values of different sizes, values inside keys, sinks, soft caps, windows, a history longer
// than a chunk; and the same bits however the rows are cut.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kv/attend.h"

namespace kvikk {
namespace {

struct Case {
  const char* name;
  size_t heads, kv_heads, key_dim, value_dim;
  bool value_in_key;
  size_t window;
  float softcap;
  bool sinks;
  size_t tokens;
};

constexpr Case kCases[] = {
    {"plain", 4, 2, 32, 32, false, 0, 0.0f, false, 150},
    {"padded", 4, 2, 24, 24, false, 0, 0.0f, false, 150},
    {"odd", 3, 1, 20, 7, false, 0, 0.0f, false, 100},
    {"unlike", 4, 4, 48, 24, false, 0, 0.0f, false, 150},
    {"latent", 6, 1, 48, 32, true, 0, 0.0f, false, 200},
    {"latent_padded", 4, 1, 40, 24, true, 0, 0.0f, false, 70},
    {"sinks", 8, 2, 64, 64, false, 0, 0.0f, true, 150},
    {"sinks_window", 8, 2, 64, 64, false, 48, 0.0f, true, 200},
    {"softcap", 4, 2, 64, 64, false, 0, 5.0f, false, 150},
    {"all", 6, 2, 40, 56, false, 100, 3.0f, true, 200},
    {"long", 4, 2, 24, 16, false, 0, 5.0f, true, 2200},
    {"many_heads", 160, 1, 48, 32, true, 0, 0.0f, true, 70},
};

class AttentionOver : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    KvShape shape;
    shape.format = KvFormat::kF32;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.key_dim;
    shape.value_dim = c.value_dim;
    shape.value_in_key = c.value_in_key;
    shape.groups = {KvGroup{{0}, c.window}};
    auto pool = PagePool::create(shape, {c.tokens / kPageTokens + 2});
    ASSERT_TRUE(pool.ok());
    pool_ = std::make_unique<PagePool>(std::move(*pool));
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& v, size_t n, float size) {
      for (size_t i = 0; i < n; ++i) v.push_back(size * normal(random));
    };
    fill(keys_, c.tokens * c.kv_heads * c.key_dim, 1.0f);
    fill(values_, c.tokens * c.kv_heads * c.value_dim, 1.0f);
    fill(queries_, c.tokens * c.heads * c.key_dim, 3.0f / std::sqrt(static_cast<float>(c.key_dim)));
    fill(sinks_, c.heads, 2.0f);
    sinks_[0] = 30.0f;  // far above any score
  }

  float value(size_t token, size_t kv_head, size_t d) const {
    const Case& c = GetParam();
    if (c.value_in_key) return keys_[(token * c.kv_heads + kv_head) * c.key_dim + d];
    return values_[(token * c.kv_heads + kv_head) * c.value_dim + d];
  }

  // Output [tokens, heads x value_dim], fed `step` tokens at a time.
  std::vector<float> run(const CpuFeatures& features, int threads, size_t step) {
    const Case& c = GetParam();
    const size_t rows = std::max(c.heads / c.kv_heads, Attention::kTileRows);
    const size_t dim = std::max(c.key_dim, c.value_dim);
    auto compute = Compute::create(make_kernels(features), threads, 64, rows, dim);
    auto attention = Attention::create(threads, c.heads, c.kv_heads, dim, c.tokens);
    EXPECT_TRUE(compute.ok() && attention.ok());
    std::vector<float> out(c.tokens * c.heads * c.value_dim);
    SequenceKv kv(*pool_);
    for (size_t first = 0; first < c.tokens; first += step) {
      const size_t count = std::min(step, c.tokens - first);
      EXPECT_TRUE(kv.reserve(count).ok());
      for (size_t t = first; t < first + count; ++t) {
        for (size_t h = 0; h < c.kv_heads; ++h) {
          const size_t at = t * c.kv_heads + h;
          pool_->store(
              (*compute)->kernels(), {0, kv.slab(0, t / kPageTokens), 0, h, t % kPageTokens},
              &keys_[at * c.key_dim], c.value_in_key ? nullptr : &values_[at * c.value_dim]);
        }
      }
      AttendLayer layer;
      layer.heads = c.heads;
      layer.queries = &queries_[first * c.heads * c.key_dim];
      layer.queries_stride = c.heads * c.key_dim;
      layer.out = &out[first * c.heads * c.value_dim];
      layer.out_stride = c.heads * c.value_dim;
      layer.softcap = c.softcap;
      layer.sinks = c.sinks ? sinks_.data() : nullptr;
      const Span span = {&kv, 0, count, first};
      attention->run(**compute, {&span, 1}, layer);
      kv.advance(count);
    }
    return out;
  }

  double expected(size_t token, size_t head, size_t d) const {
    const Case& c = GetParam();
    const size_t kv_head = head / (c.heads / c.kv_heads);
    const size_t begin = c.window > 0 && token + 1 > c.window ? token + 1 - c.window : 0;
    const float* query = &queries_[(token * c.heads + head) * c.key_dim];
    double sum = c.sinks ? std::exp(static_cast<double>(sinks_[head])) : 0.0;
    double out = 0.0;
    for (size_t t = begin; t <= token; ++t) {
      double score = 0.0;
      for (size_t i = 0; i < c.key_dim; ++i) {
        score += static_cast<double>(query[i]) *
                 static_cast<double>(keys_[(t * c.kv_heads + kv_head) * c.key_dim + i]);
      }
      if (c.softcap > 0.0f) {
        score = static_cast<double>(c.softcap) * std::tanh(score / static_cast<double>(c.softcap));
      }
      sum += std::exp(score);
      out += std::exp(score) * static_cast<double>(value(t, kv_head, d));
    }
    return out / sum;
  }

  std::unique_ptr<PagePool> pool_;
  std::vector<float> keys_, values_, queries_, sinks_;
};

std::vector<CpuFeatures> levels() {
  const CpuFeatures here = detect_cpu_features();
  std::vector<CpuFeatures> levels = {CpuFeatures{}};
  CpuFeatures avx2;
  avx2.avx2 = true;
  if (here.avx2) levels.push_back(avx2);
  if (here.avx512_vnni) levels.push_back(here);
  return levels;
}

TEST_P(AttentionOver, AgreesWithFloat64) {
  const Case& c = GetParam();
  for (const CpuFeatures& features : levels()) {
    const std::vector<float> got = run(features, 2, 50);
    for (size_t t = 0; t < c.tokens; t += t + 8 < c.tokens && t % 8 == 0 ? 7 : 1) {
      for (size_t h = 0; h<c.heads; h += c.heads> 16 ? 13 : 1) {
        for (size_t d = 0; d < c.value_dim; d += 5) {
          const double value = static_cast<double>(got[(t * c.heads + h) * c.value_dim + d]);
          ASSERT_NEAR(value, expected(t, h, d), 1e-5)
              << "token " << t << " head " << h << " dim " << d;
        }
      }
    }
  }
}

TEST_P(AttentionOver, TheBitsDoNotDependOnHowRowsAreCut) {
  for (const CpuFeatures& features : levels()) {
    const std::vector<float> whole = run(features, 1, GetParam().tokens);
    // Of 16 and 21 rows behind a long history: few tiles, each with many rows.
    for (const auto& [threads, step] :
         {std::pair<int, size_t>{2, 1}, {3, 64}, {2, 37}, {1, 21}, {2, 16}, {2, 21}}) {
      if (step == 1 && !features.avx512_vnni && GetParam().tokens > 1000) continue;
      const std::vector<float> got = run(features, threads, step);
      ASSERT_EQ(std::memcmp(got.data(), whole.data(), whole.size() * sizeof(float)), 0)
          << step << " rows at a time";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOver, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kvikk
