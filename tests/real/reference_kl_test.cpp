#include "reference_kl.h"

namespace kvikk {
namespace {

TEST(ReferenceKl, SmolLm2) {
  expect_close_to_reference("smollm2-135m", "smollm2-135m-instruct-q4_1", 0.0020);
}

TEST(ReferenceKl, Gemma3) {
  expect_close_to_reference("gemma-3-270m", "gemma-3-270m-q4_k_m", 0.0030);
}

TEST(ReferenceKl, Qwen05B) {
  expect_close_to_reference("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct", 0.0008);
}

}  // namespace
}  // namespace kvikk
