// The chain of rules against plain references: the tokens that survive, and the adjusted logits.

#include "sampling/rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "sampling/reference.h"
#include "sampling/sampler.h"

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

std::vector<std::string> words(size_t count) {
  const char* texts[] = {"a", " b", "\n", "cd", ": ", "e", "<", "/x", ">", "", "\"f", "g\n\n"};
  std::vector<std::string> vocabulary;
  for (size_t i = 0; i < count; ++i) vocabulary.push_back(texts[i % std::size(texts)]);
  return vocabulary;
}

// What one narrow() leaves behind.
struct Narrowed {
  std::vector<float> logits;      // adjusted
  std::vector<Candidate> tokens;  // most likely first
};

Narrowed narrow(const SamplingOptions& o, const std::vector<float>& logits,
                const std::vector<TokenId>& history = {}, uint64_t position = 0) {
  const auto vocabulary = words(logits.size());
  const TokenBytes bytes = [&](TokenId t) -> std::string_view {
    return vocabulary[static_cast<size_t>(t)];
  };
  auto sampler = Sampler::create(o, logits.size(), bytes);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  auto workspace = SamplerWorkspace::create(logits.size());
  const Status status = sampler->narrow(logits, history, position, *workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const int32_t t : workspace->tally()) EXPECT_EQ(t, 0);
  Narrowed result;
  const auto row = workspace->candidates.row().logits();
  result.logits.assign(row.begin(), row.end());
  const auto list = workspace->candidates.list();
  result.tokens.assign(list.begin(), list.end());
  std::sort(result.tokens.begin(), result.tokens.end(), [](const auto& a, const auto& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  return result;
}

std::vector<TokenId> ids(const std::vector<Candidate>& tokens) {
  std::vector<TokenId> result;
  for (const Candidate& c : tokens) result.push_back(c.token);
  return result;
}

std::vector<TokenId> ids(const std::vector<reference::Token>& tokens) {
  std::vector<TokenId> result;
  for (const auto& t : tokens) result.push_back(t.id);
  return result;
}

std::vector<float> random_logits(std::mt19937& generator, size_t count) {
  std::normal_distribution<float> bell(0, 1);
  const float spread = std::exp2(static_cast<float>(generator() % 9) - 4);
  std::vector<float> logits(count);
  for (float& x : logits) x = bell(generator) * spread;
  switch (generator() % 4) {
    case 0: {  // many ties
      for (float& x : logits) x = std::round(x * 2) / 2;
      break;
    }
    case 1: {  // a grammar's mask; something always remains
      for (size_t i = 1; i < count; ++i) logits[i] = generator() % 3 == 0 ? logits[i] : kForbidden;
      break;
    }
    default:
      break;
  }
  return logits;
}

template <class T>
T pick(std::mt19937& generator, std::initializer_list<T> values) {
  return values.begin()[generator() % values.size()];
}

SamplingOptions random_filters(std::mt19937& g) {
  SamplingOptions o = everything_off();
  o.top_k = pick(g, {0, 0, 1, 2, 40, 100, 1000, 100000, -1});
  o.top_p = pick(g, {1.0f, 1.0f, 0.0f, 0.1f, 0.5f, 0.95f, 0.999f});
  o.min_p = pick(g, {0.0f, 0.0f, 1e-6f, 0.05f, 0.5f, 1.0f});
  o.typical_p = pick(g, {1.0f, 1.0f, 1.0f, 0.0f, 0.2f, 0.9f});
  o.top_n_sigma = pick(g, {0.0f, 0.0f, 0.0f, 0.5f, 1.0f, 3.0f});
  o.xtc_probability = pick(g, {0.0f, 0.0f, 1.0f});
  o.xtc_threshold = pick(g, {0.0f, 0.01f, 0.1f, 0.4f, 0.6f});
  return o;
}

TEST(Rules, FiltersAgreeWithTheReference) {
  std::mt19937 generator(7);
  for (int round = 0; round < 4000; ++round) {
    const size_t count = pick(generator, {1u, 2u, 5u, 63u, 64u, 65u, 129u, 1000u, 4099u});
    const auto logits = random_logits(generator, count);
    const SamplingOptions o = random_filters(generator);
    const auto expected = reference::filter(o, logits, o.xtc_probability == 1);
    const auto got = narrow(o, logits);
    ASSERT_EQ(ids(got.tokens), ids(expected))
        << "round " << round << ": " << count << " logits, top_k " << o.top_k << " top_p "
        << o.top_p << " min_p " << o.min_p << " typical_p " << o.typical_p << " top_n_sigma "
        << o.top_n_sigma << " xtc " << o.xtc_probability << " at " << o.xtc_threshold;
  }
}

TEST(Rules, FiltersAgreeWithTheReferenceOnAWholeVocabulary) {
  std::mt19937 generator(8);
  for (int round = 0; round < 12; ++round) {
    const auto logits = random_logits(generator, 151936);
    const SamplingOptions o = random_filters(generator);
    const auto expected = reference::filter(o, logits, o.xtc_probability == 1);
    ASSERT_EQ(ids(narrow(o, logits).tokens), ids(expected)) << round;
  }
}

TEST(Rules, AdjustmentsAgreeWithTheReference) {
  std::mt19937 generator(9);
  for (int round = 0; round < 3000; ++round) {
    const size_t count = pick(generator, {1u, 3u, 12u, 50u, 300u});
    const auto logits = random_logits(generator, count);
    SamplingOptions o = everything_off();
    o.repetition_penalty = pick(generator, {1.0f, 1.1f, 2.0f, 0.5f});
    o.presence_penalty = pick(generator, {0.0f, 1.5f, -2.0f});
    o.frequency_penalty = pick(generator, {0.0f, 0.25f, -0.5f});
    o.penalty_last_n = pick(generator, {64, 0, 1, 7, -1});
    o.dry_multiplier = pick(generator, {0.0f, 0.8f, 3.0f});
    o.dry_base = pick(generator, {1.75f, 1.0f, 1.1f});
    o.dry_allowed_length = pick(generator, {2, 0, 1, 5});
    o.dry_penalty_last_n = pick(generator, {-1, 0, 1, 20, 1000});
    if (o.dry_penalty_last_n == 0) o.dry_multiplier = 0;
    if (generator() % 2 == 0) o.dry_sequence_breakers = {"</x>", "\n\n", "b\n", "\""};
    if (generator() % 5 == 0) o.dry_sequence_breakers.clear();
    for (size_t i = generator() % 4; i > 0; --i) {
      o.logit_bias.push_back(
          {static_cast<TokenId>(generator() % count), static_cast<float>(generator() % 200) - 100});
    }
    // A small alphabet, so that sequences do repeat.
    std::vector<TokenId> history(generator() % 120);
    const size_t alphabet = std::min<size_t>(count, 2 + generator() % 10);
    for (TokenId& t : history) t = static_cast<TokenId>(generator() % alphabet);
    const auto expected = reference::adjust(o, logits, history, words(count));
    const auto got = narrow(o, logits, history);
    for (size_t i = 0; i < count; ++i) {
      if (expected[i] == kForbidden) {
        ASSERT_EQ(got.logits[i], kForbidden);
      } else {
        ASSERT_NEAR(got.logits[i], expected[i], 1e-6 * (1 + std::fabs(expected[i])))
            << "round " << round << " token " << i;
      }
    }
  }
}

// --- The published definitions, by numbers worked out by hand.

TEST(Rules, RepetitionPenaltyDividesPositiveAndMultipliesNegative) {
  SamplingOptions o = everything_off();
  o.repetition_penalty = 2;
  const auto got = narrow(o, {4, -4, 4, 0}, {0, 1, 0, 3});  // twice in the history counts once
  EXPECT_EQ(got.logits, (std::vector<float>{2, -8, 4, 0}));
}

TEST(Rules, PresenceOnceAndFrequencyForEachOccurrence) {
  SamplingOptions o = everything_off();
  o.presence_penalty = 0.5f;
  o.frequency_penalty = 0.25f;
  const auto got = narrow(o, {1, 1, 1}, {0, 1, 0, 0});
  EXPECT_EQ(got.logits, (std::vector<float>{1 - 0.5f - 0.75f, 1 - 0.5f - 0.25f, 1}));
}

TEST(Rules, PenaltiesLookAtTheLastTokensOnly) {
  SamplingOptions o = everything_off();
  o.frequency_penalty = 1;
  o.penalty_last_n = 2;
  EXPECT_EQ(narrow(o, {0, 0, 0}, {0, 0, 1, 2}).logits, (std::vector<float>{0, -1, -1}));
  o.penalty_last_n = -1;
  EXPECT_EQ(narrow(o, {0, 0, 0}, {0, 0, 1, 2}).logits, (std::vector<float>{-2, -1, -1}));
}

TEST(Rules, HistoryMayHoldTokensOutsideTheVocabulary) {
  SamplingOptions o = everything_off();
  o.frequency_penalty = 1;
  o.dry_multiplier = 1;
  o.dry_allowed_length = 1;
  o.dry_sequence_breakers.clear();
  EXPECT_EQ(narrow(o, {0, 0}, {900000, 1, 900000, -5, 900000}).logits, (std::vector<float>{0, -2}));
}

TEST(Rules, DryGrowsWithTheRepeatedLength) {
  SamplingOptions o = everything_off();
  o.dry_multiplier = 1;
  o.dry_base = 2;
  o.dry_allowed_length = 2;
  o.dry_sequence_breakers.clear();
  const std::vector<float> flat(8, 0);
  // "0 1 2 3 ... 0 1 2": three tokens repeat, and 3 would continue: 1 * 2^(3-2).
  EXPECT_EQ(narrow(o, flat, {0, 1, 2, 3, 4, 0, 1, 2}).logits[3], -2);
  EXPECT_EQ(narrow(o, flat, {7, 1, 2, 3, 4, 0, 1, 2}).logits[3], -1);  // two repeat
  EXPECT_EQ(narrow(o, flat, {7, 6, 2, 3, 4, 0, 1, 2}).logits[3], 0);   // one is allowed
  // The longest match counts when a token followed several.
  EXPECT_EQ(narrow(o, flat, {1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2}).logits[3], -2);
  // Nothing else is touched.
  EXPECT_EQ(narrow(o, flat, {0, 1, 2, 3, 4, 0, 1, 2}).logits[0], 0);
}

TEST(Rules, DryStopsAtBreakersAndNeverPenalisesThem) {
  SamplingOptions o = everything_off();
  o.dry_multiplier = 1;
  o.dry_base = 2;
  o.dry_allowed_length = 2;
  const std::vector<float> flat(12, 0);  // words(): 2 is "\n", a breaker
  EXPECT_EQ(narrow(o, flat, {5, 0, 1, 3, 6, 5, 0, 1}).logits[3], -2);
  EXPECT_EQ(narrow(o, flat, {2, 0, 1, 3, 6, 2, 0, 1}).logits[3], -1);  // 2 ends the match
  EXPECT_EQ(narrow(o, flat, {0, 1, 2, 6, 0, 1}).logits[2], 0);         // 2 itself is free
  EXPECT_EQ(narrow(o, flat, {0, 2, 3, 6, 0, 2}).logits[3], 0);         // ends with a breaker
  // A breaker that is spelled by several tokens: "</x>" ends in 8 (">") only behind 6 and 7.
  o.dry_sequence_breakers = {"</x>"};
  EXPECT_EQ(narrow(o, flat, {5, 8, 0, 1, 3, 6, 5, 8, 0, 1}).logits[3], -4);
  EXPECT_EQ(narrow(o, flat, {6, 7, 8, 0, 1, 3, 5, 6, 7, 8, 0, 1}).logits[3], -1);
}

TEST(Rules, DryNeverForbidsHoweverLongTheRepetition) {
  SamplingOptions o = everything_off();
  o.dry_multiplier = 1e6f;
  o.dry_base = 1e6f;
  o.dry_sequence_breakers.clear();
  const std::vector<TokenId> history(20000, 0);
  const auto got = narrow(o, {0, kForbidden}, history);  // the only token that may follow
  EXPECT_TRUE(std::isfinite(got.logits[0]));
  EXPECT_EQ(ids(got.tokens), (std::vector<TokenId>{0}));
}

TEST(Rules, DryNeedsTheTextOfTokensOnlyForBreakers) {
  SamplingOptions o;
  o.dry_multiplier = 1;
  const auto refused = Sampler::create(o, 10);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("dry_sequence_breakers"), std::string::npos);
  o.dry_sequence_breakers.clear();
  EXPECT_TRUE(Sampler::create(o, 10).ok());
}

// log of probabilities as logits, so that the numbers in the tests are those of the description.
std::vector<float> logits_of(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  return logits;
}

TEST(Rules, XtcLeavesTheLeastLikelyTopChoice) {
  SamplingOptions o = everything_off();
  o.xtc_probability = 1;
  o.xtc_threshold = 0.1f;
  EXPECT_EQ(ids(narrow(o, logits_of({0.5, 0.25, 0.15, 0.06, 0.04})).tokens),
            (std::vector<TokenId>{2, 3, 4}));
  // One top choice or none: nothing happens.
  EXPECT_EQ(narrow(o, logits_of({0.85, 0.09, 0.06})).tokens.size(), 3u);
  EXPECT_EQ(narrow(o, std::vector<float>(11, 0.0f)).tokens.size(), 11u);
}

TEST(Rules, XtcActsAsOftenAsItShould) {
  SamplingOptions o = everything_off();
  o.xtc_probability = 0.3f;
  const auto logits = logits_of({0.6, 0.4});
  int acted = 0;
  for (uint64_t position = 0; position < 4000; ++position) {
    acted += narrow(o, logits, {}, position).tokens.size() == 1;
  }
  EXPECT_NEAR(acted, 1200, 4 * std::sqrt(4000 * 0.3 * 0.7));
}

TEST(Rules, TypicalMayDropTheMostLikely) {
  SamplingOptions o = everything_off();
  o.typical_p = 0.29f;
  // Entropy 1.90 nats; surprises .92, 2.30, 2.53: the six of .1 are nearest.
  const auto got = narrow(o, logits_of({0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.08, 0.02}));
  EXPECT_EQ(ids(got.tokens), (std::vector<TokenId>{1, 2, 3}));
}

TEST(Rules, TopNSigmaIgnoresForbiddenTokensInTheDeviation) {
  SamplingOptions o = everything_off();
  o.top_n_sigma = 1;
  // Of 0, 2, 4, 6: deviation sqrt(5) = 2.24, so 4 stays and 2 goes.
  EXPECT_EQ(ids(narrow(o, {0, 2, kForbidden, 4, 6, kForbidden}).tokens),
            (std::vector<TokenId>{4, 3}));
}

TEST(Rules, FiltersRenormaliseOverWhatIsLeft) {
  SamplingOptions o = everything_off();
  o.top_k = 2;
  o.top_p = 0.59f;  // of the two, the first holds .667
  EXPECT_EQ(ids(narrow(o, logits_of({0.4, 0.2, 0.2, 0.2})).tokens), (std::vector<TokenId>{0}));
  o.top_k = 0;
  EXPECT_EQ(ids(narrow(o, logits_of({0.4, 0.2, 0.2, 0.2})).tokens), (std::vector<TokenId>{0, 1}));
}

TEST(Rules, EachFilterLeavesAtLeastOneToken) {
  const std::vector<float> rows[] = {
      {3}, {0, 0, 0, 0}, {kForbidden, -5, kForbidden}, {-1e38f, 3e38f}};
  for (const auto& logits : rows) {
    std::vector<SamplingOptions> settings(7, everything_off());
    settings[0].top_p = 0;
    settings[1].min_p = 1;
    settings[2].typical_p = 0;
    settings[3].top_n_sigma = 1e-30f;
    settings[4].top_k = 1;
    settings[5].xtc_probability = 1;
    settings[5].xtc_threshold = 0;
    settings[6] = settings[5];
    settings[6].top_p = settings[6].typical_p = 0;
    for (const auto& o : settings) EXPECT_GE(narrow(o, logits).tokens.size(), 1u);
  }
}

TEST(Rules, EqualLogitsAreTakenInTheOrderOfTheTokens) {
  SamplingOptions o = everything_off();
  const std::vector<float> flat(1000, -3.0f);
  o.top_k = 3;
  EXPECT_EQ(ids(narrow(o, flat).tokens), (std::vector<TokenId>{0, 1, 2}));
  o.top_k = 0;
  o.top_p = 0.0035f;
  EXPECT_EQ(ids(narrow(o, flat).tokens), (std::vector<TokenId>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace kvikk
