// Guessing changes no byte: every drafter, exact and coded caches, greedy and sampled requests,
// alone and side by side, against the same requests without it.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"

namespace kvikk {
namespace {

std::string model_path(const std::string& model) {
  return std::string(KVIKK_TEST_DATA) + "/models/" + model;
}

std::unique_ptr<Engine> open(const std::string& model, const EngineOptions& options) {
  auto engine = Engine::open(model_path(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

// Prompts that repeat themselves, so that there is something to guess; long enough that pages of 64
// tokens end within drafts.
std::vector<Request> make_requests(size_t count) {
  std::mt19937 random(17);
  std::vector<Request> requests(count);
  for (size_t i = 0; i < count; ++i) {
    Request& request = requests[i];
    std::vector<TokenId> part(5 + random() % 40);
    for (TokenId& token : part) token = static_cast<TokenId>(random() % 250);
    for (int again = 0; again < 4; ++again) {
      request.tokens.insert(request.tokens.end(), part.begin(), part.end());
    }
    request.max_tokens = 1 + random() % 90;
    request.sampling.seed = static_cast<int64_t>(i);
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.7f;
    request.sampling.top_k = i % 3 == 1 ? 40 : 0;
    request.sampling.repetition_penalty = i % 4 == 3 ? 1.2f : 1.0f;
    request.sampling.logprobs = true;
    // Bias makes the tiny models repeat themselves, as real ones do in lists and code.
    for (TokenId token = 60; token < 64; ++token) request.sampling.logit_bias.push_back({token, 9});
    request.ignore_end_of_generation = i % 2 == 0;
    if (i % 5 == 4) request.stop = {"<?="};
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason reason = FinishReason::kFailed;
  bool operator==(const Answer&) const = default;
};

std::vector<Answer> answers(Engine& engine, std::vector<Request> requests) {
  std::vector<Answer> done(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].on_completion = [&done, i](const Completion& c) {
      done[i] = {c.tokens, c.logprobs, c.text, c.reason};
    };
    const auto id = engine.submit(std::move(requests[i]));
    EXPECT_TRUE(id.ok()) << id.status().message();
  }
  while (engine.step()) {
  }
  engine.scheduler().prefix_tree().clear();
  for (size_t g = 0; g < engine.pool().shape().groups.size(); ++g) {
    EXPECT_EQ(engine.pool().free_slabs(g), engine.pool().capacity(g)) << "pages leaked";
  }
  return done;
}

struct Case {
  const char* model;
  const char* kv;
};

class Speculation : public testing::TestWithParam<Case> {};

TEST_P(Speculation, ChangesNothing) {
  const std::vector<Request> requests = make_requests(20);
  EngineOptions options;
  options.threads = 1;
  options.context = 512;
  options.kv = GetParam().kv;
  options.spec = "none";
  const auto plain = open(GetParam().model, options);
  const std::vector<Answer> expected = answers(*plain, requests);
  const std::string itself = "model:" + model_path(GetParam().model);
  for (const std::string& spec : {std::string("ngram"), std::string("suffix"), itself}) {
    for (const int32_t draft : {0, 1, 7, 32}) {
      options.spec = spec;
      options.draft = draft;
      options.threads = 1 + draft % 2;
      options.parallel = draft % 2 == 0 ? 1 : 6;
      options.chunk = 40;
      const auto engine = open(GetParam().model, options);
      const std::vector<Answer> got = answers(*engine, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_TRUE(got[i] == expected[i])
            << "request " << i << " with spec " << spec << " and draft " << draft;
      }
      const SpeculationStats stats = engine->scheduler().speculation();
      if (draft == 0) continue;  // measurement may say that it does not pay
      EXPECT_GT(stats.accepted, 50u) << spec << ": too little was right to test anything";
      EXPECT_LE(stats.accepted, stats.drafted);
      if (spec != itself) {
        EXPECT_LT(stats.accepted, stats.drafted) << spec << ": nothing was taken back";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Speculation,
                         testing::Values(Case{"llama/model-q4_0.gguf", ""},
                                         Case{"gemma3_text/model.gguf", ""},
                                         Case{"qwen2/model-q8_0.gguf", "turbo4"},
                                         Case{"gemma3_text/model.gguf", "turbo3"},
                                         Case{"qwen2/model-q8_0.gguf", "fit4"}),
                         [](const auto& test) {
                           const std::string model = test.param.model;
                           return model.substr(0, model.find('/')) + "_" +
                                  (*test.param.kv == 0 ? "exact" : test.param.kv);
                         });

// The same model as its own drafter guesses everything right, greedy and sampled.
TEST(SpeculationTest, AModelAgreesWithItself) {
  EngineOptions options;
  options.context = 512;
  options.spec = "model:" + model_path("llama/model-q4_0.gguf");
  options.draft = 4;
  const auto engine = open("llama/model-q4_0.gguf", options);
  for (const float temperature : {0.0f, 1.0f}) {
    Request request;
    request.tokens = {1, 2, 3, 4, 5};
    request.max_tokens = 60;
    request.ignore_end_of_generation = true;
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    const auto answer = engine->complete(request);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_GT(answer->drafted_tokens, 20u);
    EXPECT_EQ(answer->accepted_tokens, answer->drafted_tokens);
  }
}

TEST(SpeculationTest, ADraftModelMustHaveTheSameTokens) {
  EngineOptions options;
  options.spec = "model:" + model_path("no-such.gguf");
  EXPECT_FALSE(Engine::open(model_path("llama/model-q4_0.gguf"), options).ok());
  options.spec = "wrong";
  const auto engine = Engine::open(model_path("llama/model-q4_0.gguf"), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("spec 'wrong'"), std::string::npos);
}

// The second time an answer is asked for it is guessed from the first one, for the same client
// only; the drafter itself finds nothing in a prompt of three tokens.
TEST(SpeculationTest, PastAnswersAreRememberedForTheirClient) {
  EngineOptions options;
  options.context = 512;
  options.spec = "ngram";
  options.draft = 8;
  options.spec_memory = 200;
  const auto engine = open("llama/model-q4_0.gguf", options);
  Request request;
  request.tokens = {7, 8, 9};
  request.max_tokens = 40;
  request.ignore_end_of_generation = true;
  request.sampling.temperature = 2.0f;
  request.sampling.seed = 11;
  request.client = 1;
  const auto first = engine->complete(request);
  const auto again = engine->complete(request);
  request.client = 2;
  const auto other = engine->complete(request);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(again->tokens, first->tokens);
  EXPECT_EQ(other->tokens, first->tokens);
  EXPECT_GT(again->accepted_tokens, first->accepted_tokens + 20);
  EXPECT_EQ(other->accepted_tokens, first->accepted_tokens);

  options.spec = "none";
  const auto nobody = Engine::open(model_path("llama/model-q4_0.gguf"), options);
  ASSERT_FALSE(nobody.ok());
  EXPECT_NE(nobody.status().message().find("spec_memory 200"), std::string::npos);
}

// Cancelled in the middle of a draft: the pages come back (answers() counts them), the next request
// is answered.
TEST(SpeculationTest, CancelledWhileDraftsAreChecked) {
  EngineOptions options;
  options.context = 512;
  options.spec = "suffix";
  options.draft = 16;
  const auto engine = open("llama/model-q4_0.gguf", options);
  std::vector<Request> requests = make_requests(4);
  for (Request& request : requests) {
    request.max_tokens = 300;
    request.ignore_end_of_generation = true;
    const auto id = engine->submit(request);
    ASSERT_TRUE(id.ok());
    for (int step = 0; step < 9; ++step) engine->step();
    engine->cancel(*id);
  }
  EXPECT_EQ(answers(*engine, make_requests(3)).size(), 3u);
}

}  // namespace
}  // namespace kvikk
