// What the engine promises about single requests: limits, refusals, stops, cancellation.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include "engine/evaluate.h"
#include "engine/stop_matcher.h"

namespace kvikk {
namespace {

std::unique_ptr<Engine> load(EngineOptions options = {}) {
  if (options.context == 0) options.context = 256;
  auto file = ModelFile::open(std::string(KVIKK_TEST_DATA) + "/models/llama/model-q4_0.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto engine = Engine::load(std::move(*file), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

Request request_of(size_t prompt, size_t max_tokens) {
  Request request;
  for (size_t i = 0; i < prompt; ++i) request.tokens.push_back(static_cast<TokenId>(i % 300));
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_end_of_generation = true;
  return request;
}

TEST(Engine, GeneratesAsManyTokensAsAsked) {
  auto engine = load();
  const auto completion = engine->complete(request_of(10, 5));
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->tokens.size(), 5u);
  EXPECT_EQ(completion->reason, FinishReason::kLength);
  EXPECT_EQ(completion->prompt_tokens, 10u);
}

TEST(Engine, FillsTheContextToItsLastToken) {
  auto engine = load();
  const auto completion = engine->complete(request_of(200, 0));
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->tokens.size(), 56u);
  EXPECT_EQ(completion->reason, FinishReason::kLength);
}

TEST(Engine, RefusesWhatCannotFitWithTheFigures) {
  auto engine = load();
  const auto long_prompt = engine->submit(request_of(256, 0));
  ASSERT_FALSE(long_prompt.ok());
  EXPECT_EQ(long_prompt.status().code(), StatusCode::kExhausted);
  EXPECT_NE(long_prompt.status().message().find("256"), std::string::npos);
  const auto too_many = engine->submit(request_of(200, 57));
  ASSERT_FALSE(too_many.ok());
  EXPECT_NE(too_many.status().message().find("57"), std::string::npos);
  EXPECT_TRUE(engine->idle());
}

TEST(Engine, RefusesBadRequests) {
  auto engine = load();
  EXPECT_FALSE(engine->submit(Request{}).ok());
  Request outside = request_of(3, 1);
  outside.tokens[1] = 320;
  EXPECT_EQ(engine->submit(outside).status().code(), StatusCode::kInvalidArgument);
  outside.tokens[1] = -1;
  EXPECT_FALSE(engine->submit(outside).ok());
  Request hot = request_of(3, 1);
  hot.sampling.temperature = -1;
  EXPECT_FALSE(engine->submit(hot).ok());
  Request stop = request_of(3, 1);
  stop.stop = {""};
  EXPECT_FALSE(engine->submit(stop).ok());
}

TEST(Engine, RefusesImpossibleOptions) {
  auto file = ModelFile::open(std::string(KVIKK_TEST_DATA) + "/models/llama/model-q4_0.gguf");
  ASSERT_TRUE(file.ok());
  EngineOptions options;
  options.cpu_level = "sse9";
  EXPECT_EQ(Engine::load(*file, options).status().code(), StatusCode::kInvalidArgument);
  options.cpu_level.clear();
  options.kv = "nonsense";
  EXPECT_EQ(Engine::load(*file, options).status().code(), StatusCode::kInvalidArgument);
  options.kv.clear();
  options.weights = "q9_9";
  EXPECT_EQ(Engine::load(*file, options).status().code(), StatusCode::kInvalidArgument);
  options.weights = "q8_0";
  options.exact = true;
  EXPECT_EQ(Engine::load(*file, options).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.parallel = 0;
  const Status parallel = Engine::load(*file, options).status();
  EXPECT_EQ(parallel.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(parallel.message(), "option 'parallel' is 0; it must be between 1 and 1024");
  options = {};
  options.chunk = -1;
  EXPECT_EQ(Engine::load(*file, options).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.context = 1 << 27;
  options.kv_memory_mib = 1;
  EXPECT_EQ(Engine::load(*file, options).status().code(), StatusCode::kExhausted);
}

TEST(Engine, CancelledRequestsEndAndGiveTheirPagesBack) {
  auto engine = load();
  Request request = request_of(100, 100);
  bool ended = false;
  request.on_completion = [&](const Completion& c) {
    ended = true;
    EXPECT_EQ(c.reason, FinishReason::kCancelled);
    EXPECT_FALSE(c.tokens.empty());
  };
  const auto id = engine->submit(std::move(request));
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 5; ++i) engine->step();
  engine->cancel(*id);
  engine->step();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(engine->idle());
  engine->scheduler().prefix_tree().clear();
  EXPECT_EQ(engine->pool().free_slabs(0), engine->pool().capacity(0));
}

TEST(Engine, ManyMoreRequestsThanRoomAllFinish) {
  EngineOptions options;
  options.parallel = 4;
  options.kv_memory_mib = 1;
  auto engine = load(options);
  int done = 0;
  for (int i = 0; i < 30; ++i) {
    Request request = request_of(20 + static_cast<size_t>(i) * 7, 10);
    request.tokens[0] = i;
    request.on_completion = [&](const Completion& c) {
      EXPECT_EQ(c.reason, FinishReason::kLength);
      ++done;
    };
    ASSERT_TRUE(engine->submit(std::move(request)).ok());
  }
  for (int steps = 0; engine->step(); ++steps) ASSERT_LT(steps, 5000);
  EXPECT_EQ(done, 30);
}

TEST(Engine, ARepeatedPromptCostsOnlyItsLastToken) {
  auto engine = load();
  const auto first = engine->complete(request_of(200, 4));
  const auto second = engine->complete(request_of(200, 4));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->cached_tokens, 0u);
  EXPECT_EQ(second->cached_tokens, 199u);
  EXPECT_EQ(first->tokens, second->tokens);
}

TEST(Evaluate, LogitsRefusesBadInput) {
  auto engine = load();
  const std::vector<TokenId> tokens = {1, 2, 3};
  const auto code = [&](std::span<const TokenId> t, std::vector<uint32_t> positions) {
    LogitsRequest request;
    request.tokens = t;
    request.positions = positions;
    request.row = [](size_t, std::span<const float>) { return ok_status(); };
    return evaluate_logits(*engine, request).status().code();
  };
  EXPECT_EQ(code({}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(tokens, {3}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(tokens, {1, 1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::vector<TokenId>(257, 1), {}), StatusCode::kExhausted);
}

TEST(Evaluate, AModelAgainstItselfIsTheNullControl) {
  auto base = load();
  auto test = load();
  std::vector<TokenId> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back(i * 37 % 320);
  const auto report = evaluate_kl(*base, *test, tokens, 100, 2);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tokens, 198u);
  EXPECT_EQ(report->mean, 0.0);
  EXPECT_EQ(report->max, 0.0);
  EXPECT_EQ(report->same_top_1, 1.0);
  EXPECT_EQ(report->perplexity, report->perplexity_base);
}

TEST(StopMatcher, FindsStopsAcrossPiecesAndHoldsBackBeginnings) {
  StopMatcher matcher({"END", "\n\n"});
  EXPECT_EQ(matcher.push("abcE"), "abc");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("X\n"), "ENX");
  EXPECT_EQ(matcher.push("y"), "\ny");
  EXPECT_EQ(matcher.push("zEN"), "z");
  EXPECT_EQ(matcher.push("D more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("late"), "");
}

TEST(StopMatcher, TheEarliestStopWins) {
  StopMatcher matcher({"cd", "bc"});
  EXPECT_EQ(matcher.push("abcd"), "a");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, HeldTextComesAtTheEnd) {
  StopMatcher matcher({"###"});
  EXPECT_EQ(matcher.push("a##"), "a");
  EXPECT_EQ(matcher.finish(), "##");
}

}  // namespace
}  // namespace kvikk
