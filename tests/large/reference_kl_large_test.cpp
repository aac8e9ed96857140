#include "reference_kl.h"

namespace kvikk {
namespace {

TEST(ReferenceKlLarge, Qwen15B) {
  expect_close_to_reference("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct", 0.0018);
}

}  // namespace
}  // namespace kvikk
