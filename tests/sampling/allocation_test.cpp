// A draw takes no memory once its workspace is there: nothing may allocate inside a step of the
// engine.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "sampling/sampler.h"

namespace {
std::atomic<size_t> allocations = 0;
}  // namespace

// Every form that a sanitizer would otherwise answer itself is here, so that each new meets its
// delete.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace kvikk {
namespace {

TEST(Allocation, NoneInASteadyDraw) {
  constexpr size_t kVocabulary = 5000;
  std::mt19937 generator(1);
  std::normal_distribution<float> bell(0, 3);
  std::vector<float> logits(kVocabulary);
  for (float& x : logits) x = bell(generator);
  std::vector<TokenId> history(500);
  for (TokenId& t : history) t = static_cast<TokenId>(generator() % 20);

  std::vector<SamplingOptions> settings(5);
  settings[1].temperature = 0;
  settings[2].top_k = 0;
  settings[2].top_p = 1;
  settings[2].min_p = 0;
  settings[3].typical_p = 0.9f;
  settings[3].top_n_sigma = 2;
  settings[3].top_k = 0;
  settings[3].xtc_probability = 0.5f;
  settings[4].dry_multiplier = 1;
  settings[4].repetition_penalty = 1.1f;
  settings[4].logit_bias = {{7, 1}};
  settings[4].logprobs = true;
  const TokenBytes bytes = [](TokenId) -> std::string_view { return "x"; };
  auto workspace = SamplerWorkspace::create(kVocabulary);
  for (const SamplingOptions& o : settings) {
    auto sampler = Sampler::create(o, kVocabulary, bytes);
    ASSERT_TRUE(sampler->sample(logits, history, 0, *workspace).ok());
    const size_t before = allocations;
    bool ok = true;
    for (uint64_t position = 1; position < 50; ++position) {
      ok = ok && sampler->sample(logits, history, position, *workspace).ok();
    }
    EXPECT_EQ(allocations, before);
    EXPECT_TRUE(ok);
  }
}

}  // namespace
}  // namespace kvikk
