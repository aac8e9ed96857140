// Coded caches: attention over codes against attention over the exact keys and values, with keys
// that are mostly a constant; the same bits however a sequence was cut, taken back or shared.

#include "kv/coder.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <random>

#include "kv/attend.h"

namespace kvikk {
namespace {

constexpr size_t kHeads = 4;
constexpr size_t kKvHeads = 2;
constexpr size_t kTokens = 1400;

struct Case {
  const char* kv;
  size_t head_dim;
  RopeStyle style;
  size_t window;
  double tolerance;                  // of the output, relative to a value's size
  KvFormat format = KvFormat::kF32;  // kBF16: integers, where the machine can
};

constexpr Case kCases[] = {
    {"q8", 64, RopeStyle::kHalves, 0, 0.02},
    {"q8", 80, RopeStyle::kPairs, 0, 0.02},
    {"q8", 32, RopeStyle::kPairs, 500, 0.02},
    {"q8/turbo4", 64, RopeStyle::kHalves, 0, 0.08},
    {"turbo4", 64, RopeStyle::kHalves, 0, 0.08},
    {"turbo4", 96, RopeStyle::kPairs, 500, 0.08},
    {"turbo4", 112, RopeStyle::kHalves, 0, 0.08},
    {"turbo4", 24, RopeStyle::kHalves, 0, 0.10},
    {"turbo3", 128, RopeStyle::kHalves, 0, 0.15},
    {"turbo2", 192, RopeStyle::kHalves, 0, 0.35},
    {"turbo4", 256, RopeStyle::kHalves, 500, 0.08},
    {"q8", 64, RopeStyle::kHalves, 0, 0.03, KvFormat::kBF16},
    {"q8/turbo3", 80, RopeStyle::kPairs, 500, 0.15, KvFormat::kBF16},
    {"turbo4", 64, RopeStyle::kPairs, 0, 0.08, KvFormat::kBF16},
    {"turbo4/q8", 24, RopeStyle::kHalves, 0, 0.10, KvFormat::kBF16},
    {"turbo3", 192, RopeStyle::kHalves, 0, 0.15, KvFormat::kBF16},
    {"turbo2", 128, RopeStyle::kHalves, 500, 0.35, KvFormat::kBF16},
    {"turbo3.5", 64, RopeStyle::kHalves, 0, 0.15},
    {"turbo2.5", 128, RopeStyle::kPairs, 500, 0.30, KvFormat::kBF16},
    {"turbo4-prod", 32, RopeStyle::kHalves, 0, 0.25, KvFormat::kBF16},
    {"kivi4", 64, RopeStyle::kHalves, 0, 0.10},
    {"kivi2/q8", 96, RopeStyle::kHalves, 0, 0.45, KvFormat::kBF16},
    {"polar4", 80, RopeStyle::kHalves, 0, 0.25},
    {"turbo4/polar3", 64, RopeStyle::kHalves, 0, 0.35, KvFormat::kBF16},
    {"q4-hadamard", 128, RopeStyle::kHalves, 500, 0.12, KvFormat::kBF16},
};

class CodedAttention : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    const size_t size = c.head_dim;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    KvCoderOptions options;
    auto choice = parse_kv(c.kv, c.format);
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    options.choice = *choice;
    options.head_dim = size;
    options.layers = 1;
    options.kv_heads = kKvHeads;
    options.context = kTokens;
    KvRope rope;
    rope.style = c.style;
    for (size_t i = 0; i < size / 2; ++i) {
      rope.frequencies.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(size)));
    }
    options.ropes = {rope};
    options.rope_of = {0};
    for (size_t h = 0; h < kKvHeads; ++h) {
      KeyConditioning conditioning;
      for (size_t d = 0; d < size; ++d) {
        conditioning.rope_mean.push_back(20.0f * normal(random));
        conditioning.mean.push_back(2.0f * normal(random));
        conditioning.balance.push_back(d % 3 == 0 ? 2.0f : 0.5f);
      }
      options.conditioning.push_back(std::move(conditioning));
    }
    // Keys around the image of the mean, with the spread that the balance expects.
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t h = 0; h < kKvHeads; ++h) {
        const KeyConditioning& conditioning = options.conditioning[h];
        std::vector<float> key = conditioning.rope_mean;
        for (size_t i = 0; i < size / 2; ++i) {
          const auto [a, b] = rotary_pair(c.style, i, size / 2);
          const double angle = static_cast<double>(t) * static_cast<double>(rope.frequencies[i]);
          const auto cosine = static_cast<float>(std::cos(angle));
          const auto sine = static_cast<float>(std::sin(angle));
          const float x = key[a];
          key[a] = x * cosine - key[b] * sine;
          key[b] = key[b] * cosine + x * sine;
        }
        for (size_t d = 0; d < size; ++d) {
          keys_.push_back(key[d] + conditioning.mean[d] + conditioning.balance[d] * normal(random));
          values_.push_back(normal(random));
        }
      }
    }
    for (size_t i = 0; i < kTokens * kHeads; ++i) {
      for (size_t d = 0; d < size; ++d) {
        const float balance = d % 3 == 0 ? 2.0f : 0.5f;
        queries_.push_back(normal(random) / balance / std::sqrt(static_cast<float>(size)) * 0.3f);
      }
    }
    auto coder = KvCoder::create(std::move(options));
    ASSERT_TRUE(coder.ok()) << coder.status().message();
    coder_ = *coder;
    KvShape shape;
    shape.format = c.format;
    shape.kv_heads = kKvHeads;
    shape.head_dim = size;
    KvGroup exact;
    exact.layers = {0};
    exact.window = kExactWindow;
    exact.take_back = kTakeBackMax;
    exact.first_slabs = 1;
    exact.coded_by = 1;
    KvGroup coded;
    coded.layers = {0};
    coded.window = c.window;
    coded.take_back = c.window > 0 ? kTakeBackMax : 0;
    coded.coded = true;
    shape.groups = {exact, coded};
    shape.coder = coder_;
    const size_t slabs = 3 * (kTokens / kPageTokens + 2);
    auto pool = PagePool::create(shape, {slabs, slabs});
    ASSERT_TRUE(pool.ok());
    pool_ = std::make_unique<PagePool>(std::move(*pool));
  }

  struct Runner {
    std::unique_ptr<Compute> compute;
    std::unique_ptr<Attention> attention;
  };
  Runner runner(const CpuFeatures& features, int threads) {
    const size_t dim = KvCoder::attend_dim_max(GetParam().head_dim, GetParam().head_dim);
    auto compute = Compute::create(make_kernels(features), threads, 64, Attention::kTileRows, dim);
    auto attention =
        Attention::create(threads, kHeads, kKvHeads, GetParam().head_dim, kTokens, dim);
    EXPECT_TRUE(compute.ok() && attention.ok());
    return {std::move(*compute), std::make_unique<Attention>(std::move(*attention))};
  }

  // Stores `count` tokens and attends; appends their outputs to out [tokens, heads x head_dim].
  void feed(Runner& r, SequenceKv& kv, size_t count, std::vector<float>& out,
            bool garbage = false) {
    const size_t size = GetParam().head_dim;
    const size_t first = kv.length();
    ASSERT_TRUE(kv.reserve(count).ok());
    std::vector<float> wrong(size, 3.5f);
    for (size_t t = first; t < first + count; ++t) {
      for (size_t h = 0; h < kKvHeads; ++h) {
        const size_t at = (t * kKvHeads + h) * size;
        pool_->store(r.compute->kernels(), {0, kv.slab(0, t / kPageTokens), 0, h, t % kPageTokens},
                     garbage ? wrong.data() : &keys_[at], garbage ? wrong.data() : &values_[at]);
      }
    }
    for (size_t page = first / kPageTokens; (page + 1) * kPageTokens <= first + count; ++page) {
      for (size_t h = 0; h < kKvHeads; ++h) {
        coder_->seal(GetParam().format, pool_->page(0, kv.slab(0, page), 0, h), 0, h, page,
                     pool_->page(1, kv.slab(1, page), 0, h));
      }
    }
    const size_t at = out.size();
    out.resize(at + count * kHeads * size);
    AttendLayer layer;
    layer.heads = kHeads;
    layer.queries = &queries_[first * kHeads * size];
    layer.queries_stride = kHeads * size;
    layer.out = &out[at];
    layer.out_stride = kHeads * size;
    const Span span = {&kv, 0, count, first};
    r.attention->run(*r.compute, {&span, 1}, layer);
    kv.advance(count);
    kv.drop_unseen();
  }

  std::vector<float> run(const CpuFeatures& features, int threads, std::vector<size_t> steps) {
    Runner r = runner(features, threads);
    SequenceKv kv(*pool_);
    std::vector<float> out;
    for (size_t i = 0; kv.length() < kTokens; ++i) {
      feed(r, kv, std::min(steps[i % steps.size()], kTokens - kv.length()), out);
    }
    return out;
  }

  // Exact attention of one token and head, dim d.
  std::vector<double> expected(size_t token, size_t head) const {
    const Case& c = GetParam();
    const size_t size = c.head_dim;
    const size_t kv_head = head / (kHeads / kKvHeads);
    const size_t begin = c.window > 0 && token + 1 > c.window ? token + 1 - c.window : 0;
    std::vector<double> scores;
    double largest = -INFINITY;
    for (size_t t = begin; t <= token; ++t) {
      double score = 0;
      for (size_t d = 0; d < size; ++d) {
        score += static_cast<double>(queries_[(token * kHeads + head) * size + d]) *
                 static_cast<double>(keys_[(t * kKvHeads + kv_head) * size + d]);
      }
      scores.push_back(score);
      largest = std::max(largest, score);
    }
    std::vector<double> out(size);
    double sum = 0;
    for (size_t t = begin; t <= token; ++t) {
      const double weight = std::exp(scores[t - begin] - largest);
      sum += weight;
      for (size_t d = 0; d < size; ++d) {
        out[d] += weight * static_cast<double>(values_[(t * kKvHeads + kv_head) * size + d]);
      }
    }
    for (double& o : out) o /= sum;
    return out;
  }

  std::shared_ptr<const KvCoder> coder_;
  std::unique_ptr<PagePool> pool_;
  std::vector<float> keys_, values_, queries_;
};

TEST_P(CodedAttention, IsNearTheExactOne) {
  const size_t size = GetParam().head_dim;
  for (const CpuFeatures& features : {CpuFeatures{}, detect_cpu_features()}) {
    const std::vector<float> got = run(features, 2, {200});
    double error = 0;
    double squares = 0;
    for (size_t t = 1; t < kTokens; t += 61) {
      for (size_t h = 0; h < kHeads; ++h) {
        const std::vector<double> want = expected(t, h);
        for (size_t d = 0; d < size; ++d) {
          error += std::pow(want[d] - static_cast<double>(got[(t * kHeads + h) * size + d]), 2);
          squares += want[d] * want[d];
        }
      }
    }
    EXPECT_LT(std::sqrt(error / squares), GetParam().tolerance);
  }
}

TEST_P(CodedAttention, DoesNotDependOnStepsOrThreads) {
  const CpuFeatures here = detect_cpu_features();
  const std::vector<float> whole = run(here, 1, {kTokens});
  EXPECT_EQ(whole, run(here, 3, {1, 64, 7, 130, 500}));
  EXPECT_EQ(whole, run(here, 2, {63, 1, 2}));
  EXPECT_EQ(whole, run(here, 4, {1, 1, 1, 300}));
  EXPECT_EQ(whole, run(here, 1, {32}));  // few tiles, each with many rows
}

// Tokens that were taken back leave no trace, also over the end of a page.
TEST_P(CodedAttention, TakesTokensBack) {
  const CpuFeatures here = detect_cpu_features();
  const std::vector<float> whole = run(here, 1, {kTokens});
  Runner r = runner(here, 2);
  SequenceKv kv(*pool_);
  std::vector<float> out;
  std::mt19937 random(4);
  while (kv.length() < kTokens) {
    feed(r, kv, std::min<size_t>(1 + random() % 150, kTokens - kv.length()), out);
    const size_t length = kv.length();
    if (length == kTokens) break;
    std::vector<float> ignored;
    feed(r, kv, std::min<size_t>(1 + random() % 64, kTokens - length), ignored, true);
    ASSERT_TRUE(kv.can_truncate(length)) << length;
    kv.truncate(length);
  }
  EXPECT_EQ(whole, out);
}

TEST_P(CodedAttention, ForksGoTheirOwnWays) {
  const CpuFeatures here = detect_cpu_features();
  const std::vector<float> whole = run(here, 1, {kTokens});
  Runner r = runner(here, 1);
  SequenceKv kv(*pool_);
  std::vector<float> out;
  feed(r, kv, 700, out);
  SequenceKv other = kv.fork();
  std::vector<float> ignored;
  feed(r, other, 100, ignored, true);
  feed(r, kv, kTokens - 700, out);
  EXPECT_EQ(whole, out);
}

INSTANTIATE_TEST_SUITE_P(All, CodedAttention, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.kv + std::string("_") + std::to_string(test.param.head_dim) +
                     (test.param.window > 0 ? "_window" : "") +
                     (test.param.format == KvFormat::kBF16 ? "_integers" : "");
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST(ParseKv, KnowsNamesAndSaysThem) {
  EXPECT_EQ(parse_kv("", KvFormat::kF32)->name(), "f32");
  EXPECT_EQ(parse_kv("bf16", KvFormat::kF32)->name(), "bf16");
  EXPECT_EQ(parse_kv("turbo4", KvFormat::kBF16)->name(), "turbo4");
  EXPECT_EQ(parse_kv("q8/turbo4", KvFormat::kBF16)->name(), "q8/turbo4");
  for (const char* wrong : {"turbo5", "q8/", "/q8", "q8/turbo4/q8", "bf16/q8", "Q8"}) {
    const auto choice = parse_kv(wrong, KvFormat::kBF16);
    ASSERT_FALSE(choice.ok()) << wrong;
    EXPECT_NE(choice.status().message().find("turbo4"), std::string::npos);
  }
}

// Zeros, faults and sizes beyond a half float's range: defined, in the page and in the output.
TEST(KvCoderPages, DegenerateKeysStayInTheirToken) {
  KvCoderOptions options;
  options.choice = *parse_kv("q8/turbo3", KvFormat::kF32);
  options.head_dim = 32;
  options.layers = 1;
  options.kv_heads = 1;
  options.ropes = {KvRope{}};
  options.rope_of = {0};
  auto coder = KvCoder::create(options);
  ASSERT_TRUE(coder.ok());
  const Kernels kernels = make_kernels(detect_cpu_features());
  std::vector<float> page(kPageTokens * 64);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(page.data());
  std::vector<float> x(32, 1.0f);
  for (size_t t = 0; t < kPageTokens; ++t) {
    std::vector<float> key = x;
    if (t == 1) key.assign(32, 0.0f);
    if (t == 2) key[3] = NAN;
    if (t == 3) key[3] = INFINITY;
    if (t == 4) key.assign(32, 1e36f);
    kernels.store_key[1](bytes, t, key.data(), 32);
    kernels.store_value[1](bytes + kv_part_bytes(KvFormat::kF32, 32), t, key.data(), 32);
  }
  std::vector<uint8_t> coded((*coder)->page_bytes());
  (*coder)->seal(KvFormat::kF32, bytes, 0, 0, 0, coded.data());
  std::vector<float> keys(kPageTokens * 32), values(kPageTokens * 32);
  (*coder)->decode(kernels, 0, 0, coded.data(), keys.data(), values.data());
  for (size_t t = 0; t < kPageTokens; ++t) {
    for (size_t d = 0; d < 32; ++d) {
      const float key = keys[(t / 16 * 32 + d) * 16 + t % 16];
      const float value = values[t * 32 + d];
      if (t == 1) {
        EXPECT_EQ(key, 0.0f);
        EXPECT_EQ(value, 0.0f);
      } else {
        EXPECT_EQ(std::isnan(key), t == 2 || t == 3) << t;
        EXPECT_EQ(std::isnan(value), t == 2 || t == 3) << t;
        EXPECT_FALSE(std::isinf(key));
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
