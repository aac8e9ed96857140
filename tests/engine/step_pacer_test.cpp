// How many rows of prompts fit into a step, from what steps took before.

#include "engine/step_pacer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvikk {
namespace {

// A machine on which a step takes `alone` seconds and `row` more for each row of a prompt.
void run(StepPacer& pacer, size_t answers, double alone, double row, int steps) {
  for (int i = 0; i < steps; ++i) {
    pacer.measured(answers, 0, alone);
    const size_t rows = pacer.prompt_rows(answers, 512);
    pacer.measured(answers, rows, alone + row * static_cast<double>(rows));
  }
}

TEST(StepPacer, StepsStretchNoMoreThanPromised) {
  for (const double row : {0.0001, 0.0005, 0.002}) {
    StepPacer pacer(0);
    run(pacer, 8, 0.04, row, 50);
    const double step = 0.04 + row * static_cast<double>(pacer.prompt_rows(8, 512));
    EXPECT_LE(step, 0.04 * StepPacer::kStretch * 1.01);
    EXPECT_GE(step, std::min(0.04 + row * 512, 0.04 * StepPacer::kStretch) * 0.9);
  }
}

TEST(StepPacer, ALimitInSecondsIsKept) {
  StepPacer pacer(0.1);
  run(pacer, 4, 0.02, 0.001, 50);
  EXPECT_NEAR(static_cast<double>(pacer.prompt_rows(4, 512)), 80.0, 2.0);
  EXPECT_EQ(pacer.prompt_rows(4, 50), 50u);
}

TEST(StepPacer, PromptsAlwaysGoOn) {
  StepPacer pacer(0.001);
  run(pacer, 4, 0.02, 0.1, 50);
  EXPECT_EQ(pacer.prompt_rows(4, 512), StepPacer::kPromptRowsMin);
  EXPECT_EQ(pacer.prompt_rows(4, 3), 3u);
}

TEST(StepPacer, NobodyWaitsNothingIsHeldBack) {
  StepPacer pacer(0.001);
  EXPECT_EQ(pacer.prompt_rows(0, 512), 512u);
  EXPECT_EQ(pacer.prompt_rows(2, 512), StepPacer::kPromptRowsFirst);
  pacer.measured(0, 512, 0.5);
  EXPECT_EQ(pacer.prompt_rows(0, 512), 512u);
}

TEST(StepPacer, OtherNumbersOfAnswersAreJudgedByTheNearest) {
  StepPacer pacer(0);
  pacer.measured(0, 512, 0.512);  // 1 ms a row
  pacer.measured(1, 0, 0.010);
  pacer.measured(64, 0, 0.040);
  EXPECT_NEAR(static_cast<double>(pacer.prompt_rows(1, 512)), 30.0, 1.0);
  EXPECT_NEAR(static_cast<double>(pacer.prompt_rows(2, 512)), 30.0, 1.0);
  EXPECT_NEAR(static_cast<double>(pacer.prompt_rows(48, 512)), 80.0, 1.0);
}

}  // namespace
}  // namespace kvikk
