// Caches that drop tokens: what stays of a prompt against a plain float64 selection, and what a
// later token then sees against a softmax over exactly that.

#include "kv/token_evictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace kvikk {
namespace {

constexpr size_t kHeads = 4, kKvHeads = 2, kDim = 24, kLayers = 3, kTokens = 300;
constexpr size_t kSliding = 1;  // the layer with a window

class Evicting : public testing::TestWithParam<KvEviction> {
 protected:
  void SetUp() override {
    KvShape shape;
    shape.format = KvFormat::kF32;
    shape.kv_heads = kKvHeads;
    shape.head_dim = kDim;
    shape.groups = {KvGroup{{0, 2}, 0}, KvGroup{{kSliding}, 100}};
    auto pool = PagePool::create(shape, {12, 12});
    ASSERT_TRUE(pool.ok());
    pool_ = std::make_unique<PagePool>(std::move(*pool));
    auto compute = Compute::create(make_kernels(CpuFeatures{}), 2, 64, Attention::kTileRows, kDim);
    ASSERT_TRUE(compute.ok());
    compute_ = std::move(*compute);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* v : {&keys_, &values_}) {
      v->resize(kLayers * (kTokens + 1) * kKvHeads * kDim);
      for (float& x : *v) x = normal(random);
    }
    queries_.resize(kLayers * (kTokens + 1) * kHeads * kDim);
    for (float& x : queries_) x = 0.6f * normal(random);
  }

  const float* key(size_t layer, size_t token, size_t head) const {
    return &keys_[((layer * (kTokens + 1) + token) * kKvHeads + head) * kDim];
  }
  const float* value(size_t layer, size_t token, size_t head) const {
    return &values_[((layer * (kTokens + 1) + token) * kKvHeads + head) * kDim];
  }
  const float* query(size_t layer, size_t token, size_t head) const {
    return &queries_[((layer * (kTokens + 1) + token) * kHeads + head) * kDim];
  }
  static double dot(const float* a, const float* b) {
    double sum = 0.0;
    for (size_t d = 0; d < kDim; ++d) sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    return sum;
  }

  void append(SequenceKv& kv, TokenEvictor& evictor, size_t count) {
    ASSERT_TRUE(kv.reserve(count).ok());
    const Span span = {&kv, 0, count, kv.length()};
    for (size_t g = 0; g < 2; ++g) {
      const auto& layers = pool_->shape().groups[g].layers;
      for (size_t i = 0; i < layers.size(); ++i) {
        for (size_t t = kv.length(); t < kv.length() + count; ++t) {
          for (size_t h = 0; h < kKvHeads; ++h) {
            pool_->store(compute_->kernels(),
                         {g, kv.slab(g, t / kPageTokens), i, h, t % kPageTokens},
                         key(layers[i], t, h), value(layers[i], t, h));
          }
        }
        evictor.observe({&span, 1}, layers[i], query(layers[i], kv.length(), 0), kHeads * kDim);
      }
    }
    kv.advance(count);
  }

  // What a head keeps of the prompt, as the papers say it.
  std::vector<uint32_t> expected(const TokenEvictor& evictor, size_t layer, size_t kv_head) const {
    const size_t budget = evictor.budget(kTokens, layer);
    std::vector<uint32_t> all(kTokens);
    std::iota(all.begin(), all.end(), 0u);
    const size_t window = TokenEvictor::kWindow;
    std::vector<double> weight(kTokens, 0.0);
    if (GetParam() == KvEviction::kStreaming) {
      for (size_t t = 0; t < kTokens; ++t) weight[t] = t < 4 ? 1e9 : static_cast<double>(t);
    } else {
      std::vector<double> sum(kTokens, 0.0);
      for (size_t h = kv_head * 2; h < kv_head * 2 + 2; ++h) {
        for (size_t q = kTokens - window; q < kTokens; ++q) {
          double total = 0.0;
          for (size_t t = 0; t <= q; ++t) {
            total += std::exp(dot(query(layer, q, h), key(layer, t, kv_head)));
          }
          for (size_t t = 0; t <= q; ++t) {
            sum[t] += std::exp(dot(query(layer, q, h), key(layer, t, kv_head))) / total;
          }
        }
      }
      for (size_t t = 0; t < kTokens; ++t) {
        if (t >= kTokens - window) weight[t] = 1e9;
        for (size_t n = t < 3 ? 0 : t - 3; n <= t + 3 && n < kTokens - window; ++n) {
          weight[t] += sum[n];
        }
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](uint32_t a, uint32_t b) { return weight[a] > weight[b]; });
    all.resize(budget);
    std::sort(all.begin(), all.end());
    return all;
  }

  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Compute> compute_;
  std::vector<float> keys_, values_, queries_;
};

TEST_P(Evicting, KeepsWhatThePaperSaysAndSeesNothingElse) {
  TokenEvictor evictor(GetParam(), kLayers, kHeads);
  SequenceKv kv(*pool_);
  for (const size_t count : {190u, 90u, 13u, 7u}) append(kv, evictor, count);
  const SequenceKv sharing = kv.fork();
  const KeptTokens kept = evictor.choose(*compute_, kv);
  EXPECT_TRUE(kept.groups[1].empty());
  size_t total = 0;
  for (size_t i = 0; i < 2; ++i) {
    const size_t layer = pool_->shape().groups[0].layers[i];
    for (size_t h = 0; h < kKvHeads; ++h) {
      EXPECT_EQ(kept.groups[0][i * kKvHeads + h], expected(evictor, layer, h)) << layer << ' ' << h;
    }
    total += evictor.budget(kTokens, layer);
  }
  EXPECT_EQ(total, 2 * kTokens / kEvictionKeepsOneIn);

  ASSERT_TRUE(kv.evict(compute_->kernels(), kept, [](size_t) {}).ok());
  EXPECT_TRUE(kv.can_truncate(kTokens));
  EXPECT_FALSE(kv.can_truncate(kTokens - 1));
  EXPECT_EQ(kv.slab(0, 0), kNoSlab);
  append(kv, evictor, 1);
  auto attention = Attention::create(2, kHeads, kKvHeads, kDim, kTokens + 1);
  ASSERT_TRUE(attention.ok());
  for (size_t i = 0; i < 2; ++i) {
    const size_t model_layer = pool_->shape().groups[0].layers[i];
    std::vector<float> out(kHeads * kDim);
    AttendLayer layer;
    layer.layer_in_group = i;
    layer.heads = kHeads;
    layer.queries = query(model_layer, kTokens, 0);
    layer.queries_stride = layer.out_stride = kHeads * kDim;
    layer.out = out.data();
    const Span span = {&kv, 0, 1, kTokens};
    attention->run(*compute_, {&span, 1}, layer);
    for (size_t head = 0; head < kHeads; ++head) {
      const size_t kv_head = head / (kHeads / kKvHeads);
      std::vector<uint32_t> seen = kept.groups[0][i * kKvHeads + kv_head];
      seen.push_back(kTokens);
      double sum = 0.0;
      std::vector<double> mean(kDim, 0.0);
      for (const uint32_t t : seen) {
        const double weight =
            std::exp(dot(query(model_layer, kTokens, head), key(model_layer, t, kv_head)));
        sum += weight;
        for (size_t d = 0; d < kDim; ++d) {
          mean[d] += weight * static_cast<double>(value(model_layer, t, kv_head)[d]);
        }
      }
      for (size_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(static_cast<double>(out[head * kDim + d]), mean[d] / sum, 1e-5) << head;
      }
    }
  }
  // Whoever shared the pages still has them as they were.
  for (const uint32_t t : {0u, 150u, 299u}) {
    const float* page =
        reinterpret_cast<const float*>(pool_->page(0, sharing.slab(0, t / kPageTokens), 1, 1));
    EXPECT_EQ(page[t % kPageTokens / 16 * 16 * 32 + t % 16], key(2, t, 1)[0]);
  }
}

TEST_P(Evicting, AFullPoolLosesNothing) {
  TokenEvictor evictor(GetParam(), kLayers, kHeads);
  SequenceKv kv(*pool_);
  append(kv, evictor, kTokens);
  const SequenceKv sharing = kv.fork();
  SequenceKv other(*pool_);
  ASSERT_TRUE(other.reserve((12 - 5) * kPageTokens).ok());
  EXPECT_EQ(kv.evict(compute_->kernels(), evictor.choose(*compute_, kv), [](size_t) {}).code(),
            StatusCode::kExhausted);
  EXPECT_FALSE(kv.evicted());
  EXPECT_TRUE(kv.can_truncate(10));
}

TEST_P(Evicting, AShortPromptStaysWhole) {
  TokenEvictor evictor(GetParam(), kLayers, kHeads);
  SequenceKv kv(*pool_);
  append(kv, evictor, 40);
  const KeptTokens kept = evictor.choose(*compute_, kv);
  for (const auto& positions : kept.groups[0]) EXPECT_EQ(positions.size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Evicting,
                         testing::Values(KvEviction::kStreaming, KvEviction::kSnap,
                                         KvEviction::kPyramid),
                         [](const auto& kind) {
                           return std::string(
                               kv_eviction_names()[static_cast<size_t>(kind.param) - 1]);
                         });

}  // namespace
}  // namespace kvikk
