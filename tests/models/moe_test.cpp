// The choice of experts: what each kind of router makes of known logits.

#include "models/moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvikk {
namespace {

std::vector<ExpertChoice> choose(const MoeConfig& config, std::vector<float> logits,
                                 const std::vector<float>& correction = {}) {
  std::vector<ExpertChoice> choices(config.chosen);
  choose_experts(config, correction.empty() ? nullptr : correction.data(), logits.data(),
                 choices.data());
  return choices;
}

std::vector<uint32_t> experts_of(const std::vector<ExpertChoice>& choices) {
  std::vector<uint32_t> experts;
  for (const ExpertChoice& choice : choices) experts.push_back(choice.expert);
  return experts;
}

float log_odds(float p) { return std::log(p / (1.0f - p)); }

MoeConfig config_of(size_t experts, size_t chosen) {
  MoeConfig config;
  config.experts = experts;
  config.chosen = chosen;
  return config;
}

TEST(Router, SoftmaxRunsOverAllExperts) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(2.0f),
                                     std::log(3.0f)};
  const auto choices = choose(config_of(4, 2), logits);
  EXPECT_EQ(experts_of(choices), (std::vector<uint32_t>{1, 3}));
  EXPECT_NEAR(choices[0].weight, 0.4f, 1e-6);
  EXPECT_NEAR(choices[1].weight, 0.3f, 1e-6);
}

TEST(Router, RenormalisedWeightsSumToTheScale) {
  MoeConfig config = config_of(4, 2);
  config.renormalize = true;
  config.weight_scale = 2.5f;
  const auto choices =
      choose(config, {std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(3.0f)});
  EXPECT_NEAR(choices[0].weight, 2.5f * 4 / 7, 1e-6);
  EXPECT_NEAR(choices[1].weight, 2.5f * 3 / 7, 1e-6);
}

TEST(Router, TheLowerNumberWinsATie) {
  EXPECT_EQ(experts_of(choose(config_of(5, 2), {0, 1, 1, 1, 0})), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(experts_of(choose(config_of(3, 3), {0, 0, 0})), (std::vector<uint32_t>{0, 1, 2}));
}

TEST(Router, ACorrectionChoosesButDoesNotWeigh) {
  MoeConfig config = config_of(3, 1);
  config.score = MoeConfig::Score::kSigmoid;
  const std::vector<float> logits = {log_odds(0.5f), log_odds(0.9f), log_odds(0.25f)};
  EXPECT_EQ(choose(config, logits)[0].expert, 1u);
  const auto corrected = choose(config, logits, {0.0f, -0.5f, 0.5f});
  EXPECT_EQ(corrected[0].expert, 2u);
  EXPECT_NEAR(corrected[0].weight, 0.25f, 1e-6);
}

TEST(Router, OnlyTheBestGroupsAreChosenFrom) {
  MoeConfig config = config_of(6, 2);
  config.score = MoeConfig::Score::kSigmoid;
  config.groups = 3;
  config.groups_chosen = 1;
  // The best expert is in group 0, the best two together in group 2.
  const std::vector<float> logits = {log_odds(0.9f), log_odds(0.1f), log_odds(0.3f),
                                     log_odds(0.2f), log_odds(0.6f), log_odds(0.7f)};
  config.group_score = MoeConfig::GroupScore::kBest;
  EXPECT_EQ(experts_of(choose(config, logits)), (std::vector<uint32_t>{0, 1}));
  config.group_score = MoeConfig::GroupScore::kBestTwo;
  EXPECT_EQ(experts_of(choose(config, logits)), (std::vector<uint32_t>{4, 5}));
  config.groups_chosen = 2;
  EXPECT_EQ(experts_of(choose(config, logits)), (std::vector<uint32_t>{0, 5}));
}

// A model with damaged weights may compute anything; the choice stays inside the table.
TEST(Router, NotANumberChoosesRealExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  MoeConfig config = config_of(6, 3);
  config.groups = 3;
  config.groups_chosen = 2;
  config.renormalize = true;
  for (const float bad : {nan, infinity, -infinity}) {
    for (const std::vector<float>& logits :
         {std::vector<float>(6, bad), std::vector<float>{0, bad, 1, 2, bad, 3}}) {
      const auto experts = experts_of(choose(config, logits));
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LT(experts[i], 6u);
        if (i > 0) {
          EXPECT_LT(experts[i - 1], experts[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
