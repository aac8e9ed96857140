#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "sampling/sampler.h"

namespace kvikk {
namespace {

std::vector<float> row(size_t count, uint32_t seed, bool ties) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> bell(3, 4);
  std::vector<float> logits(count);
  for (float& x : logits) x = ties ? std::round(bell(generator)) : bell(generator);
  return logits;
}

long double exact(const std::vector<float>& logits, size_t token) {
  long double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<long double>(x) - logits[token]);
  return -std::log(sum);
}

TEST(Logprobs, ExactOverTheRawLogitsWhateverTheChainDoes) {
  for (const size_t count : {1u, 2u, 100u, 151936u}) {
    for (const float temperature : {0.0f, 0.7f}) {
      const auto logits = row(count, 1, false);
      SamplingOptions o;
      o.temperature = temperature;
      o.logprobs = true;
      o.presence_penalty = 10;
      o.logit_bias = {{0, 5}};
      auto sampler = Sampler::create(o, count);
      auto workspace = SamplerWorkspace::create(count);
      const std::vector<TokenId> history = {0};
      for (uint64_t position = 0; position < 5; ++position) {
        const auto sampled = sampler->sample(logits, history, position, *workspace);
        ASSERT_TRUE(sampled.ok());
        const auto expected = exact(logits, static_cast<size_t>(sampled->token));
        EXPECT_FLOAT_EQ(sampled->logprob, static_cast<float>(expected));
        EXPECT_TRUE(sampled->top.empty());
      }
    }
  }
}

TEST(Logprobs, TopTokensInOrder) {
  for (const bool ties : {false, true}) {
    for (const size_t count : {1u, 5u, 20u, 64u, 1000u, 151936u}) {
      auto logits = row(count, 2, ties);
      if (count > 2) logits[1] = -INFINITY;
      std::vector<size_t> order;
      for (size_t i = 0; i < count; ++i) {
        if (logits[i] != -INFINITY) order.push_back(i);
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return logits[a] > logits[b]; });
      SamplingOptions o;
      o.top_logprobs = 20;
      auto sampler = Sampler::create(o, count);
      auto workspace = SamplerWorkspace::create(count);
      const auto sampled = sampler->sample(logits, {}, 0, *workspace);
      ASSERT_TRUE(sampled.ok());
      ASSERT_EQ(sampled->top.size(), std::min<size_t>(20, order.size()));
      for (size_t i = 0; i < sampled->top.size(); ++i) {
        EXPECT_EQ(sampled->top[i].token, static_cast<TokenId>(order[i]));
        EXPECT_FLOAT_EQ(sampled->top[i].logprob, static_cast<float>(exact(logits, order[i])));
      }
      EXPECT_TRUE(std::isfinite(sampled->logprob));
    }
  }
}

TEST(Logprobs, NotComputedUnlessAsked) {
  auto sampler = Sampler::create(SamplingOptions{}, 10);
  auto workspace = SamplerWorkspace::create(10);
  const auto sampled = sampler->sample(row(10, 3, false), {}, 0, *workspace);
  EXPECT_TRUE(std::isnan(sampled->logprob));
}

// Far tails keep their precision: the log-probability of a certain token is the tail, not zero.
TEST(Logprobs, NearlyCertainToken) {
  SamplingOptions o;
  o.temperature = 0;
  o.logprobs = true;
  auto sampler = Sampler::create(o, 2);
  auto workspace = SamplerWorkspace::create(2);
  const auto sampled = sampler->sample(std::vector<float>{0, -20}, {}, 0, *workspace);
  EXPECT_FLOAT_EQ(sampled->logprob, static_cast<float>(-std::log1p(std::exp(-20.0))));
}

}  // namespace
}  // namespace kvikk
