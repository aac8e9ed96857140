// Draws: their distribution, and that they depend on nothing but options, logits, history and
// position.

#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <functional>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "sampling/draw.h"
#include "sampling/reference.h"

namespace kvikk {
namespace {

constexpr float kForbidden = -INFINITY;

SamplingOptions everything_off() {
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  o.seed = 1;
  return o;
}

std::vector<float> bell_logits(size_t count, float spread, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> bell(0, spread);
  std::vector<float> logits(count);
  for (float& x : logits) x = bell(generator);
  return logits;
}

class Drawer {
 public:
  Drawer(const SamplingOptions& o, size_t vocabulary)
      : sampler_(std::move(Sampler::create(o, vocabulary).value())),
        workspace_(std::move(SamplerWorkspace::create(vocabulary).value())) {}

  SampledToken operator()(std::span<const float> logits, uint64_t position,
                          std::span<const TokenId> history = {}) {
    auto sampled = sampler_.sample(logits, history, position, workspace_);
    EXPECT_TRUE(sampled.ok()) << sampled.status().message();
    return sampled.value();
  }

  const Sampler& sampler() const { return sampler_; }

 private:
  Sampler sampler_;
  SamplerWorkspace workspace_;
};

// Pearson's statistic, with the rare outcomes taken together.
void expect_distribution(const std::map<TokenId, int>& seen, const std::vector<TokenId>& tokens,
                         const std::vector<double>& p, int draws) {
  double statistic = 0, rare_expected = 0;
  int cells = 0, rare_seen = 0, accounted = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto found = seen.find(tokens[i]);
    const int count = found == seen.end() ? 0 : found->second;
    const double expected = p[i] * draws;
    accounted += count;
    if (expected < 8) {
      rare_expected += expected;
      rare_seen += count;
      continue;
    }
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  }
  EXPECT_EQ(accounted, draws) << "a token outside the reference's survivors was drawn";
  if (rare_expected >= 1) {
    statistic += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    ++cells;
  } else {
    EXPECT_LE(rare_seen, 12);
  }
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(statistic, freedom + 4 * std::sqrt(2 * freedom) + 8);
}

// Over positions and over seeds, through the row and through the list.
TEST(Sampler, DrawsFollowTheReferenceDistribution) {
  constexpr int kDraws = 12000;
  std::vector<SamplingOptions> settings(9, everything_off());
  settings[1].temperature = 0.4f;
  settings[2].temperature = 3;
  settings[3] = SamplingOptions{};  // the default chain
  settings[4].top_k = 7;
  settings[5].top_p = 0.8f;
  settings[6].typical_p = 0.6f;
  settings[7].min_p = 0.2f;
  settings[7].temperature = 1.5f;
  settings[8].top_n_sigma = 1;
  const std::vector<float> rows[] = {bell_logits(5, 1, 1), bell_logits(64, 2, 2),
                                     bell_logits(300, 1, 3)};
  for (SamplingOptions o : settings) {
    for (const auto& logits : rows) {
      const auto survivors = reference::filter(o, logits, false);
      const auto p = reference::probabilities(survivors, o.temperature);
      std::vector<TokenId> tokens;
      for (const auto& t : survivors) tokens.push_back(t.id);

      o.seed = 12345;
      Drawer drawer(o, logits.size());
      std::map<TokenId, int> by_position, by_seed;
      for (int i = 0; i < kDraws; ++i) {
        ++by_position[drawer(logits, static_cast<uint64_t>(i)).token];
      }
      expect_distribution(by_position, tokens, p, kDraws);
      auto workspace = SamplerWorkspace::create(logits.size());
      for (int i = 0; i < kDraws; ++i) {
        o.seed = i;
        const auto seeded = Sampler::create(o, logits.size());
        ++by_seed[seeded->sample(logits, {}, 77, *workspace)->token];
      }
      expect_distribution(by_seed, tokens, p, kDraws);
    }
  }
}

// XTC's coin must not be the noise of a token, or it would pick which token comes when it acts.
TEST(Sampler, XtcMixesTwoDistributions) {
  SamplingOptions o = everything_off();
  o.xtc_probability = 0.5f;
  o.xtc_threshold = 0.25f;
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  Drawer drawer(o, logits.size());
  constexpr int kDraws = 40000;
  std::map<TokenId, int> seen;
  for (int i = 0; i < kDraws; ++i) ++seen[drawer(logits, static_cast<uint64_t>(i)).token];
  expect_distribution(seen, {0, 1, 2, 3},
                      {0.2, 0.15 + 0.25, 0.1 + 0.5 * 0.2 / 0.6, 0.05 + 0.5 * 0.1 / 0.6}, kDraws);
}

// The race, written down plainly.
TokenId plain_race(std::span<const float> logits, double temperature, RandomKey key) {
  double top = -INFINITY, best = INFINITY;
  for (const float x : logits) top = std::max<double>(top, x);
  TokenId winner = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kForbidden) continue;
    const double u = uniform(key, RandomStream::kToken, static_cast<uint32_t>(i));
    const double time = std::log(-std::log(u)) + (top - logits[i]) / temperature;
    if (time < best || winner < 0) {
      best = time;
      winner = static_cast<TokenId>(i);
    }
  }
  return winner;
}

TEST(Sampler, RowListAndPlainRaceDrawTheSame) {
  std::mt19937 generator(4);
  for (const size_t count : {1u, 2u, 63u, 64u, 65u, 1000u, 20001u}) {
    auto candidates = std::move(Candidates::create(count).value());
    for (int round = 0; round < 200; ++round) {
      auto logits = bell_logits(count, round % 2 == 0 ? 1 : 6, generator());
      if (round % 3 == 0) {
        for (size_t i = 1; i < count; ++i) {
          if (generator() % 2 == 0) logits[i] = kForbidden;
        }
      }
      const double temperatures[] = {1e-30, 1e-6, 0.1, 0.8, 1, 30, 1e6};
      const double temperature = temperatures[round % 7];
      const RandomKey key{static_cast<uint64_t>(round), generator()};
      candidates.begin(logits);
      ASSERT_TRUE(candidates.scan(0).ok());
      const TokenId from_row = draw(candidates, temperature, key);
      candidates.list();
      ASSERT_EQ(draw(candidates, temperature, key), from_row);
      ASSERT_EQ(plain_race(logits, temperature, key), from_row) << count << " " << round;
    }
  }
}

TEST(Sampler, DrawDoesNotDependOnTheTokensThatLost) {
  const auto logits = bell_logits(500, 2, 5);
  SamplingOptions narrow = everything_off(), wide = everything_off();
  narrow.top_k = 20;
  Drawer narrow_drawer(narrow, 500), wide_drawer(wide, 500);
  int same = 0, kept = 0;
  std::vector<float> sorted = logits;
  std::nth_element(sorted.begin(), sorted.begin() + 19, sorted.end(), std::greater<>());
  for (uint64_t position = 0; position < 500; ++position) {
    const TokenId all = wide_drawer(logits, position).token;
    if (logits[static_cast<size_t>(all)] < sorted[19]) continue;
    ++kept;
    same += narrow_drawer(logits, position).token == all;
  }
  EXPECT_GT(kept, 100);
  EXPECT_EQ(same, kept);
}

// --- Purity.

TEST(Sampler, DrawsDoNotDependOnOrderWorkspaceOrThread) {
  constexpr size_t kVocabulary = 3000;
  SamplingOptions o;
  o.seed = 99;
  o.repetition_penalty = 1.2f;
  o.xtc_probability = 0.5f;
  o.dry_multiplier = 0.8f;
  o.dry_sequence_breakers.clear();
  o.top_logprobs = 3;
  std::vector<std::vector<float>> rows;
  std::vector<TokenId> history;
  for (uint32_t i = 0; i < 40; ++i) {
    rows.push_back(bell_logits(kVocabulary, 3, i));
    history.push_back(static_cast<TokenId>(i % 7));
  }
  const auto prefix = [&](size_t position) { return std::span(history).first(position); };
  const auto original_rows = rows;
  std::vector<TokenId> expected;
  Drawer drawer(o, kVocabulary);
  for (size_t i = 0; i < 40; ++i) expected.push_back(drawer(rows[i], i, prefix(i)).token);
  EXPECT_EQ(rows, original_rows);

  for (size_t i = 40; i-- > 0;) EXPECT_EQ(drawer(rows[i], i, prefix(i)).token, expected[i]);
  std::thread([&] {
    for (size_t i = 0; i < 40;
         ++i) {  // each with a fresh sampler, between draws of another request
      Drawer fresh(o, kVocabulary);
      SamplingOptions other = everything_off();
      Drawer(other, kVocabulary)(rows[39 - i], 39 - i);
      EXPECT_EQ(fresh(rows[i], i, prefix(i)).token, expected[i]);
    }
  }).join();
}

// A change here changes what every user's seed gives: it needs a reason and a line in the release
// notes.
TEST(Sampler, SeedsGiveTheseTokens) {
  const auto draws = [](const SamplingOptions& o) {
    std::vector<float> logits(1000);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 8;
    Drawer drawer(o, logits.size());
    std::vector<TokenId> tokens;
    for (uint64_t position = 0; position < 8; ++position) {
      tokens.push_back(drawer(logits, position).token);
    }
    return tokens;
  };
  SamplingOptions o;
  o.seed = 42;
  EXPECT_EQ(draws(o), (std::vector<TokenId>{60, 535, 393, 221, 595, 535, 797, 535}));
  o = everything_off();
  EXPECT_EQ(draws(o), (std::vector<TokenId>{865, 895, 603, 862, 60, 715, 786, 319}));
}

TEST(Sampler, FreshSeedsDifferAndAreReported) {
  SamplingOptions o = everything_off();
  o.seed = kFreshSeed;
  const std::vector<float> flat(100000, 0.0f);
  Drawer a(o, flat.size()), b(o, flat.size());
  EXPECT_NE(a.sampler().seed(), b.sampler().seed());
  o.seed = static_cast<int64_t>(a.sampler().seed());
  Drawer again(o, flat.size());
  EXPECT_EQ(again(flat, 3).token, a(flat, 3).token);
}

// --- Greedy and extremes.

TEST(Sampler, GreedyIsTheFirstHighestLogitWhateverTheFilters) {
  SamplingOptions o;
  o.temperature = 0;
  o.typical_p = 0.1f;
  o.xtc_probability = 1;
  o.xtc_threshold = 0.01f;
  std::vector<float> logits(200, 0.0f);
  logits[70] = logits[131] = 2;
  Drawer drawer(o, logits.size());
  for (uint64_t position = 0; position < 20; ++position) {
    EXPECT_EQ(drawer(logits, position).token, 70);
  }
  logits[3] = -0.0f;
  logits[70] = logits[131] = -1;
  EXPECT_EQ(drawer(logits, 0).token, 0);
}

TEST(Sampler, GreedyHeedsPenaltiesAndBias) {
  SamplingOptions o;
  o.temperature = 0;
  o.presence_penalty = 2;
  Drawer penalised(o, 3);
  const std::vector<float> logits = {3, 2, 1};
  const std::vector<TokenId> history = {0};
  EXPECT_EQ(penalised(logits, 1, history).token, 1);
  o.logit_bias = {{2, 50}};
  Drawer biased(o, 3);
  EXPECT_EQ(biased(logits, 1, history).token, 2);
}

TEST(Sampler, ExtremeTemperatures) {
  SamplingOptions o = everything_off();
  o.temperature = 1e-6f;
  const std::vector<float> logits = {1, 1.001f, -50, 1};
  Drawer cold(o, 4);
  for (uint64_t position = 0; position < 200; ++position)
    EXPECT_EQ(cold(logits, position).token, 1);
  o.temperature = 1e6f;
  Drawer hot(o, 4);
  std::map<TokenId, int> seen;
  for (uint64_t position = 0; position < 8000; ++position) ++seen[hot(logits, position).token];
  expect_distribution(seen, {0, 1, 2, 3}, {0.25, 0.25, 0.25, 0.25}, 8000);
  o.temperature = 1e-45f;  // the smallest float
  Drawer coldest(o, 4);
  EXPECT_EQ(coldest(logits, 0).token, 1);
}

TEST(Sampler, ExtremeRows) {
  for (const float temperature : {0.0f, 1e-6f, 0.8f, 1e6f}) {
    SamplingOptions o;
    o.temperature = temperature;
    o.seed = 1;
    Drawer one(o, 1);
    EXPECT_EQ(one(std::vector<float>{-7}, 0).token, 0);
    std::vector<float> logits(1000, kForbidden);
    logits[777] = -1e30f;
    Drawer drawer(o, logits.size());
    EXPECT_EQ(drawer(logits, 0).token, 777);
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    Drawer whole_row(o, logits.size());
    EXPECT_EQ(whole_row(logits, 0).token, 777);
    logits[5] = 3e38f;
    logits[777] = -3e38f;
    EXPECT_EQ(whole_row(logits, 0).token, 5);
  }
}

TEST(Sampler, BiasBeyondTheFloatRangeStaysFinite) {
  SamplingOptions o = everything_off();
  o.repetition_penalty = 100;
  Drawer drawer(o, 2);
  const std::vector<TokenId> history = {0, 1};
  EXPECT_LE(drawer(std::vector<float>{-3e38f, -3e38f}, 0, history).token, 1);
}

// --- Damaged rows.

TEST(Sampler, NanAnywhereIsAnErrorThatSaysWhere) {
  for (const float temperature : {0.0f, 0.8f}) {
    SamplingOptions o;
    o.temperature = temperature;
    o.logit_bias = {{3, 1}};
    auto sampler = Sampler::create(o, 200);
    auto workspace = SamplerWorkspace::create(200);
    for (size_t bad = 0; bad < 200; ++bad) {
      for (const float value : {NAN, -NAN, INFINITY}) {
        auto logits = bell_logits(200, 2, 6);
        logits[bad] = value;
        const auto sampled = sampler->sample(logits, {}, 57, *workspace);
        ASSERT_FALSE(sampled.ok()) << bad;
        EXPECT_EQ(sampled.status().code(), StatusCode::kDamaged);
        const std::string& message = sampled.status().message();
        EXPECT_NE(message.find("token " + std::to_string(bad) + " "), std::string::npos) << message;
        EXPECT_NE(message.find("position 57"), std::string::npos) << message;
      }
    }
    EXPECT_TRUE(sampler->sample(bell_logits(200, 2, 6), {}, 57, *workspace).ok());
  }
}

TEST(Sampler, NoTokenAllowedIsAnError) {
  auto sampler = Sampler::create(SamplingOptions{}, 100);
  auto workspace = SamplerWorkspace::create(100);
  const auto sampled = sampler->sample(std::vector<float>(100, kForbidden), {}, 4, *workspace);
  ASSERT_FALSE(sampled.ok());
  EXPECT_NE(sampled.status().message().find("no token may follow at position 4"),
            std::string::npos);
}

TEST(Sampler, SaysHowManyLogitsItLooksAt) {
  const auto needed = [](const std::function<void(SamplingOptions&)>& change) {
    SamplingOptions options;
    change(options);
    return Sampler::create(options, 1000).value().top_needed();
  };
  EXPECT_EQ(needed([](SamplingOptions&) {}), 40u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.temperature = 0; }), 1u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_k = 7; }), 7u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_k = 0; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_k = -1; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_n_sigma = 1; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.logprobs = true; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_logprobs = 2; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.logit_bias = {{5, 1.0f}}; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.presence_penalty = 1; }), 0u);
  EXPECT_EQ(needed([](SamplingOptions& o) {
              o.temperature = 0;
              o.repetition_penalty = 1.1f;
            }),
            0u);
}

}  // namespace
}  // namespace kvikk
