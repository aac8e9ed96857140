// The engine's thread, asked from many: every request is heard of to its end, all of a job or none
// is taken, what is cancelled gives its pages back. ThreadSanitizer runs this too.

#include "serving/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "serving/task_threads.h"

namespace kvikk {
namespace {

std::unique_ptr<Engine> load(int parallel) {
  EngineOptions options;
  options.context = 256;
  options.parallel = parallel;
  options.threads = 2;
  auto file = ModelFile::open(std::string(KVIKK_TEST_DATA) + "/models/llama/model-q4_0.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto engine = Engine::load(std::move(*file), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  static_cast<void>((*engine)->tokenizer());
  return std::move(*engine);
}

Request request_of(int first, size_t max_tokens) {
  Request request;
  for (int i = 0; i < 70; ++i) request.tokens.push_back((first + i) % 300);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_end_of_generation = true;
  return request;
}

// Counts; called on the engine's thread.
struct Counter : JobListener {
  std::atomic<size_t> tokens{0};
  std::atomic<size_t> done{0};
  std::atomic<size_t> cancelled{0};
  std::vector<TokenId> answer;
  std::string text;  // of the tokens

  void on_token(size_t, const TokenEvent& event) override {
    text += event.text;
    ++tokens;
  }
  void on_done(size_t, Answer completion) override {
    answer = completion.tokens;
    if (completion.reason == FinishReason::kCancelled) ++cancelled;
    ++done;
  }
};

void wait_until(const std::function<bool()>& reached) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!reached() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(reached());
}

void deliver_here(std::function<void()> task) { task(); }

TEST(EngineThread, AnswersManyThreadsAsOneAfterAnother) {
  auto engine = load(4);
  std::vector<Completion> wanted;
  std::vector<size_t> pieces(
      12);  // a character that an answer breaks off in comes after its tokens
  for (size_t i = 0; i < pieces.size(); ++i) {
    Request request = request_of(static_cast<int>(i), 9);
    request.on_chunk = [&](const Chunk&) { ++pieces[i]; };
    const auto completion = engine->complete(std::move(request));
    ASSERT_TRUE(completion.ok());
    EXPECT_EQ(completion->tokens.size(), 9u);
    wanted.push_back(*completion);
  }
  EngineThread runner(*engine, 100, deliver_here);
  std::vector<std::shared_ptr<Counter>> counters(12);
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    counters[static_cast<size_t>(i)] = std::make_shared<Counter>();
    clients.emplace_back([&, i] {
      const auto job =
          runner.submit({request_of(i, 9)}, counters[static_cast<size_t>(i)], i % 2 == 0);
      EXPECT_TRUE(job.ok());
      static_cast<void>(runner.load());
    });
  }
  for (std::thread& client : clients) client.join();
  wait_until([&] { return runner.open_requests() == 0; });
  for (size_t i = 0; i < counters.size(); ++i) {
    wait_until([&] { return counters[i]->done == 1; });
    const bool streams = i % 2 == 0;
    EXPECT_EQ(counters[i]->answer, wanted[i].tokens);
    EXPECT_EQ(counters[i]->text, streams ? wanted[i].text : "");
    EXPECT_EQ(counters[i]->tokens, streams ? pieces[i] : 0u);
  }
}

TEST(EngineThread, TakesAllRequestsOfAJobOrNone) {
  auto engine = load(2);
  EngineThread runner(*engine, 1, deliver_here);
  const auto counter = std::make_shared<Counter>();
  std::vector<Request> four(4, request_of(0, 5));
  EXPECT_EQ(runner.submit(four, counter, false).status().code(), StatusCode::kExhausted);
  EXPECT_EQ(runner.open_requests(), 0u);
  ASSERT_TRUE(runner.submit({four.begin(), four.begin() + 3}, counter, false).ok());
  wait_until([&] { return counter->done == 3; });
  ASSERT_TRUE(runner.submit({four[0]}, counter, false).ok());
  wait_until([&] { return counter->done == 4; });
}

TEST(EngineThread, WhatIsCancelledGivesItsPagesBack) {
  auto engine = load(2);
  EngineThread runner(*engine, 50, deliver_here);
  const auto counter = std::make_shared<Counter>();
  std::vector<JobId> jobs;
  for (int i = 0; i < 20; ++i) {
    const auto job = runner.submit({request_of(i * 7, 180)}, counter, true);
    ASSERT_TRUE(job.ok());
    jobs.push_back(*job);
  }
  std::thread other([&] {
    for (size_t i = 0; i < jobs.size(); i += 2) runner.cancel(jobs[i]);
    runner.cancel(12345);  // never was
  });
  for (size_t i = 1; i < jobs.size(); i += 2) runner.cancel(jobs[i]);
  other.join();
  wait_until([&] { return counter->done == 20; });
  EXPECT_GE(counter->cancelled, 10u);
  wait_until([&] { return runner.load().running == 0; });
  EXPECT_EQ(runner.load().leaked_slabs, 0u);
  EXPECT_EQ(runner.load().cache_used, 0.0);
}

TEST(EngineThread, EndsWithRequestsInIt) {
  auto engine = load(2);
  const auto counter = std::make_shared<Counter>();
  {
    EngineThread runner(*engine, 50, deliver_here);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(runner.submit({request_of(i, 180)}, counter, true).ok());
    }
  }
  EXPECT_EQ(counter->done, 10u);
  EXPECT_TRUE(engine->idle());
}

TEST(TaskThreads, RunsWhatItTookAndRefusesTheRest) {
  std::atomic<int> ran{0};
  std::atomic<bool> go{false};
  int taken = 0;
  {
    TaskThreads threads(1, 3);
    for (int i = 0; i < 20; ++i) {
      taken += threads.run([&] {
        while (!go) std::this_thread::yield();
        ++ran;
      });
    }
    EXPECT_GE(taken, 3);
    EXPECT_LE(taken, 4);
    go = true;
  }
  EXPECT_EQ(ran, taken);
}

}  // namespace
}  // namespace kvikk
