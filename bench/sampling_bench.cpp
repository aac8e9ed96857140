// What a draw costs over 150k logits (the vocabulary of Qwen), for the chains that requests ask
// for. The row is synthetic but shaped like a model's: a bell of unlikely tokens and a handful far
// above it.

#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "sampling/numeric.h"
#include "sampling/sampler.h"

namespace kvikk {
namespace {

constexpr size_t kVocabulary = 151936;
constexpr size_t kHistoryTokens = 4096;

std::vector<float> make_logits() {
  std::mt19937 generator(1);
  std::normal_distribution<float> bell(0, 2.5f);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = bell(generator);
  for (int i = 0; i < 50; ++i) {
    logits[generator() % kVocabulary] = 18.0f - 3.0f * std::log(1.0f + static_cast<float>(i));
  }
  return logits;
}

SamplingOptions everything_off() {
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

SamplingOptions with(void (*change)(SamplingOptions&)) {
  SamplingOptions o = everything_off();
  change(o);
  return o;
}

void BM_Draw(benchmark::State& state, SamplingOptions options) {
  options.seed = 1;
  const auto logits = make_logits();
  std::vector<TokenId> history(kHistoryTokens);
  std::mt19937 generator(2);
  for (TokenId& token : history) token = static_cast<TokenId>(generator() % 1000);
  const TokenBytes bytes = [](TokenId token) -> std::string_view {
    return token % 20 == 0 ? "\n" : "word";
  };
  auto sampler = Sampler::create(options, kVocabulary, bytes);
  auto workspace = SamplerWorkspace::create(kVocabulary);
  if (!sampler.ok() || !workspace.ok()) return state.SkipWithError("create failed");
  uint64_t position = kHistoryTokens;
  for (auto _ : state) {
    auto sampled = sampler->sample(logits, history, position++, *workspace);
    benchmark::DoNotOptimize(sampled.value().token);
  }
  state.counters["logits_per_second"] =
      benchmark::Counter(kVocabulary, benchmark::Counter::kIsIterationInvariantRate);
}

#define DRAW(name, ...) BENCHMARK_CAPTURE(BM_Draw, name, __VA_ARGS__)->Unit(benchmark::kMicrosecond)

DRAW(greedy, with([](SamplingOptions& o) { o.temperature = 0; }));
DRAW(default_chain, SamplingOptions{});
DRAW(default_chain_with_logprobs, [] {
  SamplingOptions o;
  o.logprobs = true;
  return o;
}());
DRAW(default_chain_with_penalties, [] {
  SamplingOptions o;
  o.repetition_penalty = 1.1f;
  return o;
}());
DRAW(default_chain_with_dry, [] {
  SamplingOptions o;
  o.dry_multiplier = 0.8f;
  return o;
}());
DRAW(temperature_alone, everything_off());
DRAW(top_k_1000, with([](SamplingOptions& o) { o.top_k = 1000; }));
DRAW(top_k_10000, with([](SamplingOptions& o) { o.top_k = 10000; }));
DRAW(top_p, with([](SamplingOptions& o) { o.top_p = 0.95f; }));
DRAW(top_p_close_to_one, with([](SamplingOptions& o) { o.top_p = 0.9999f; }));
DRAW(min_p, with([](SamplingOptions& o) { o.min_p = 0.05f; }));
DRAW(typical_p, with([](SamplingOptions& o) { o.typical_p = 0.9f; }));
DRAW(top_n_sigma, with([](SamplingOptions& o) { o.top_n_sigma = 1; }));
DRAW(xtc, with([](SamplingOptions& o) { o.xtc_probability = 0.5f; }));

void BM_SumExp(benchmark::State& state) {
  const auto logits = make_logits();
  for (auto _ : state) benchmark::DoNotOptimize(sum_exp(logits.data(), logits.size(), 30));
  state.counters["logits_per_second"] =
      benchmark::Counter(kVocabulary, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_SumExp)->Unit(benchmark::kMicrosecond);

void BM_Uniforms(benchmark::State& state) {
  std::vector<double> out(512);
  uint64_t position = 0;
  for (auto _ : state) {
    uniforms({1, position++}, RandomStream::kToken, 0, out.size(), out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["numbers_per_second"] =
      benchmark::Counter(512, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Uniforms);

}  // namespace
}  // namespace kvikk

BENCHMARK_MAIN();
