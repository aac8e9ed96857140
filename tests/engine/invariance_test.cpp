// The law of the engine: what a request gets depends on nothing but the request. Random schedules
// (order of arrival, neighbours, threads, chunk, cached prefixes in memory and on the disk,
// cancellations) must give the same tokens and the same logits, byte for byte.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/evaluate.h"

namespace kvikk {
namespace {

// After an '@': the cache.
const char* const kModels[] = {"llama/model-q4_0.gguf",
                               "qwen2/model-q8_0.gguf",
                               "gemma3_text/model.gguf",
                               "llama/model-q4_0.gguf@turbo3",
                               "qwen2/model-q8_0.gguf@turbo4",
                               "qwen2/model-q8_0.gguf@fit4",
                               "gemma3_text/model.gguf@q8/turbo2",
                               "gpt_oss/model.gguf",
                               "deepseek_v3/model.gguf",
                               "glm4_moe/model.gguf"};

std::unique_ptr<Engine> load(std::string model, EngineOptions options) {
  const size_t at = model.find('@');
  if (at != std::string::npos) {
    options.kv = model.substr(at + 1);
    model.resize(at);
  }
  auto file = ModelFile::open(std::string(KVIKK_TEST_DATA) + "/models/" + model);
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto engine = Engine::load(std::move(*file), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

std::vector<TokenId> random_tokens(std::mt19937& random, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 320);
  return tokens;
}

// Requests of mixed length; some begin alike, so that prefixes are shared.
std::vector<Request> random_requests(std::mt19937& random, size_t count) {
  const std::vector<TokenId> common = random_tokens(random, 150);
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    request.tokens = random_tokens(random, 1 + random() % 200);
    if (random() % 2 == 0) {
      const size_t shared = random() % common.size();
      request.tokens.insert(request.tokens.begin(), common.begin(),
                            common.begin() + static_cast<long>(shared));
    }
    request.max_tokens = 1 + random() % 24;
    request.sampling.temperature = random() % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = static_cast<int64_t>(random() % 1000);
    request.sampling.top_k = 0;
    request.sampling.logprobs = true;
    request.ignore_end_of_generation = true;
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

Answer alone(const std::string& model, const Request& request) {
  EngineOptions options;
  options.threads = 1;
  options.context = 512;
  auto engine = load(model, options);
  auto completion = engine->complete(request);
  EXPECT_TRUE(completion.ok()) << completion.status().message();
  EXPECT_EQ(completion->cached_tokens, 0u);
  return {completion->tokens, completion->logprobs};
}

class Invariance : public testing::TestWithParam<const char*> {};

TEST_P(Invariance, RandomSchedulesGiveTheSameAnswers) {
  std::mt19937 random(7);
  std::vector<Request> requests = random_requests(random, 14);
  std::vector<Answer> expected;
  for (const Request& request : requests) expected.push_back(alone(GetParam(), request));
  size_t cached = 0;
  uint64_t from_disk = 0;
  const std::string folder = testing::TempDir() + "kvikk_invariance_" + std::to_string(::getpid());
  for (int schedule = 0; schedule < 6; ++schedule) {
    EngineOptions options;
    options.threads = 1 + static_cast<int>(random() % 3);
    options.context = 512;
    options.parallel = 1 + static_cast<int>(random() % 8);
    if (schedule % 2 == 1) options.prefix_disk = folder;
    options.chunk = std::max(options.parallel, 1 + static_cast<int>(random() % 130));
    auto engine = load(GetParam(), options);
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::map<size_t, Completion> done;
    for (size_t i : order) {
      Request request = requests[i];
      request.on_completion = [&done, i](const Completion& c) { done[i] = c; };
      auto id = engine->submit(std::move(request));
      ASSERT_TRUE(id.ok()) << id.status().message();
      // A neighbour that is cancelled on the way must leave no trace.
      Request neighbour = requests[random() % requests.size()];
      neighbour.sampling.seed = 99;
      auto other = engine->submit(std::move(neighbour));
      ASSERT_TRUE(other.ok());
      for (size_t steps = random() % 4; steps > 0; --steps) engine->step();
      engine->cancel(*other);
    }
    while (engine->step()) {
    }
    ASSERT_EQ(done.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answer got = {done[i].tokens, done[i].logprobs};
      EXPECT_TRUE(got == expected[i]) << "request " << i << " of schedule " << schedule;
      cached += done[i].cached_tokens;
    }
    if (const PrefixStore* disk = engine->scheduler().prefix_tree().store()) {
      from_disk += disk->stats().read;
    }
    engine->scheduler().prefix_tree().clear();
    for (size_t g = 0; g < engine->pool().shape().groups.size(); ++g) {
      EXPECT_EQ(engine->pool().free_slabs(g), engine->pool().capacity(g)) << "pages leaked";
    }
  }
  EXPECT_GT(cached, 0u) << "no schedule reused a prefix: the test does not test that";
  EXPECT_GT(from_disk, 0u) << "nor one from the disk";
  std::filesystem::remove_all(folder);
}

TEST_P(Invariance, LogitsDoNotDependOnChunkOrThreads) {
  std::mt19937 random(11);
  const std::vector<TokenId> tokens = random_tokens(random, 300);
  const std::vector<uint32_t> positions = {0, 1, 62, 63, 64, 65, 127, 128, 129, 200, 299};
  std::vector<float> first;
  for (const auto& [threads, chunk] :
       {std::pair{1, 300}, {2, 300}, {3, 1}, {1, 7}, {2, 64}, {2, 65}, {1, 130}}) {
    EngineOptions options;
    options.threads = threads;
    options.chunk = chunk;
    options.context = 301;
    auto engine = load(GetParam(), options);
    std::vector<float> logits;
    LogitsRequest request;
    request.tokens = tokens;
    request.positions = positions;
    request.row = [&](size_t, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
      return ok_status();
    };
    const auto done = evaluate_logits(*engine, request);
    ASSERT_TRUE(done.ok()) << done.status().message();
    if (first.empty()) first = logits;
    EXPECT_TRUE(logits == first) << threads << " threads, chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance, testing::ValuesIn(kModels), [](const auto& test) {
  const std::string name = test.param;
  const size_t at = name.find('@');
  std::string kv = at == std::string::npos ? "" : "_" + name.substr(at + 1);
  std::replace(kv.begin(), kv.end(), '/', '_');
  return name.substr(0, name.find('/')) + kv;
});

}  // namespace
}  // namespace kvikk
