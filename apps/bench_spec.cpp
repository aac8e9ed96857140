#include "bench_spec.h"

#include <algorithm>
#include <vector>

#include "answer.h"
#include "base/check.h"
#include "bench_measure.h"
#include "models/kv_coding.h"

namespace kvikk {
namespace {

constexpr size_t kTextTokens = 200;  // of the built-in text
constexpr size_t kCopies = 3;        // of it in a prompt that asks for one more

struct Assignment {
  const char* name;
  std::vector<TokenId> prompt;
};

Result<std::vector<Assignment>> make_assignments(Engine& engine) {
  TRY_ASSIGN(std::vector<TokenId> text, engine.encode(calibration_text()));
  text.resize(std::min(text.size(), kTextTokens));
  std::vector<TokenId> copies;
  for (size_t i = 0; i < kCopies; ++i) copies.insert(copies.end(), text.begin(), text.end());
  return std::vector<Assignment>{{"copy", std::move(copies)}, {"prose", std::move(text)}};
}

Result<Completion> answer(Engine& engine, const Assignment& work, size_t tokens, bool speculate) {
  Request request;
  request.tokens = work.prompt;
  request.max_tokens = tokens;
  request.sampling.temperature = 0;
  request.ignore_end_of_generation = true;
  request.speculate = speculate;
  return engine.complete(std::move(request));
}

}  // namespace

size_t spec_context(size_t tokens) { return kCopies * kTextTokens + tokens + 1; }

Status measure_spec(Engine& engine, size_t tokens, int32_t repeat,
                    const std::function<Status()>& go_on,
                    const std::function<Status(SpecResult)>& take) {
  tokens = std::max<size_t>(tokens, 2);  // the first one is the prompt's
  TRY_ASSIGN(const std::vector<Assignment> all, make_assignments(engine));
  for (const Assignment& work : all) {
    std::vector<double> plain, with, ratios;
    SpecResult result;
    // The first pair warms the cache of prefixes and the policy's measurements.
    for (int32_t i = 0; i <= repeat; ++i) {
      TRY(go_on());
      TRY_ASSIGN(const Completion a, answer(engine, work, tokens, false));
      TRY(go_on());
      TRY_ASSIGN(const Completion b, answer(engine, work, tokens, true));
      CHECK(a.tokens == b.tokens);
      if (i == 0) continue;
      plain.push_back(decode_rate(a));
      with.push_back(decode_rate(b));
      ratios.push_back(with.back() / plain.back());
      result.drafted = b.drafted_tokens;
      result.accepted = b.accepted_tokens;
    }
    result.work = work.name;
    result.tokens = tokens;
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    result.min = *low;
    result.max = *high;
    result.plain = median_of(std::move(plain));
    result.with = median_of(std::move(with));
    result.ratio = median_of(std::move(ratios));
    TRY(take(std::move(result)));
  }
  return ok_status();
}

}  // namespace kvikk
