// Who runs when: none of it changes an answer, so these look at the order.

#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/engine.h"

namespace kvikk {
namespace {

std::unique_ptr<Engine> load(int parallel, int chunk = 512) {
  EngineOptions options;
  options.context = 512;
  options.parallel = parallel;
  options.chunk = chunk;
  auto file = ModelFile::open(std::string(KVIKK_TEST_DATA) + "/models/llama/model-q4_0.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto engine = Engine::load(std::move(*file), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

class Order : public testing::Test {
 protected:
  Request request_of(int name, size_t prompt, size_t max_tokens) {
    Request request;
    for (size_t i = 0; i < prompt; ++i) {
      request.tokens.push_back((name * 7 + static_cast<int>(i)) % 300);
    }
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.ignore_end_of_generation = true;
    request.on_chunk = [this, name, begun = false](const Chunk&) mutable {
      if (!begun) first_tokens.push_back(name);
      begun = true;
    };
    request.on_completion = [this, name](const Completion& completion) {
      done.push_back(name);
      last = completion;
    };
    return request;
  }
  void submit(Engine& engine, Request request) {
    const auto id = engine.submit(std::move(request));
    ASSERT_TRUE(id.ok()) << id.status().message();
  }

  std::vector<int> first_tokens, done;
  Completion last;
};

TEST_F(Order, AShortPromptOvertakesALongOne) {
  auto engine = load(2, 32);
  submit(*engine, request_of(1, 450, 4));
  engine->step();
  submit(*engine, request_of(2, 20, 4));
  while (engine->step()) {
  }
  EXPECT_EQ(first_tokens, (std::vector<int>{2, 1}));
}

TEST_F(Order, ALongPromptIsNotStarved) {
  auto engine = load(4, 32);
  submit(*engine, request_of(1, 320, 1));
  for (int i = 2; i < 200 && done.empty(); ++i) {  // always a short one beside it
    Request request = request_of(i, 32, 1);
    request.on_completion = {};
    submit(*engine, std::move(request));
    engine->step();
    EXPECT_LT(i, 40);  // half of the rows are its own: 20 steps
  }
  EXPECT_EQ(done, std::vector<int>{1});
  while (engine->step()) {
  }
}

TEST_F(Order, ClientsTakeTurns) {
  auto engine = load(1);
  for (int i = 0; i < 6; ++i) submit(*engine, request_of(i, 100, 2));  // of client 0
  Request other = request_of(100, 100, 2);
  other.client = 5;
  submit(*engine, std::move(other));
  while (engine->step()) {
  }
  ASSERT_EQ(done.size(), 7u);
  EXPECT_EQ(done[0], 0);
  EXPECT_EQ(done[1], 100);
}

TEST_F(Order, LowerPrioritiesStartEarlier) {
  auto engine = load(1);
  for (const int priority : {2, 0, 1, -3}) {
    Request request = request_of(priority + 3, 50, 2);
    request.priority = priority;
    submit(*engine, std::move(request));
  }
  while (engine->step()) {
  }
  EXPECT_EQ(done, (std::vector<int>{0, 3, 4, 5}));
}

TEST_F(Order, EqualPrefixesAreComputedOnce) {
  auto engine = load(8);
  for (int i = 0; i < 8; ++i) {
    Request request = request_of(1, 200, 3);
    request.tokens.back() = i;  // after 192 equal ones
    submit(*engine, std::move(request));
  }
  while (engine->step()) {
  }
  EXPECT_EQ(done.size(), 8u);
  EXPECT_EQ(engine->scheduler().stats().prefill_rows, 200u + 7 * 1);
}

TEST_F(Order, ClientsDoNotShareTheirPrefixes) {
  auto engine = load(1);
  for (const uint64_t client : {1, 2, 1}) {
    Request request = request_of(1, 200, 3);
    request.client = client;
    submit(*engine, std::move(request));
    while (engine->step()) {
    }
    EXPECT_EQ(last.cached_tokens, done.size() == 3 ? 199u : 0u);
  }
}

TEST_F(Order, DeadlinesEndWhatRunsAndWhatWaits) {
  auto engine = load(1);
  for (int i = 0; i < 2; ++i) {
    Request request = request_of(i, 50, 400);
    request.deadline = Sequence::Clock::now() - std::chrono::seconds(i);
    submit(*engine, std::move(request));
  }
  Request later = request_of(2, 50, 3);
  later.deadline = Sequence::Clock::now() + std::chrono::hours(1);
  submit(*engine, std::move(later));
  engine->step();
  EXPECT_EQ(done.size(), 2u);
  EXPECT_EQ(last.reason, FinishReason::kDeadline);
  while (engine->step()) {
  }
  EXPECT_EQ(last.reason, FinishReason::kLength);
  EXPECT_EQ(engine->scheduler().reserved_fraction(), 0.0);
  EXPECT_EQ(engine->scheduler().leaked_slabs(), 0u);
}

}  // namespace
}  // namespace kvikk
