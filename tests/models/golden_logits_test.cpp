// Logits of the exact engine against what the original implementations (float32) computed for tiny
// random models of every family, and of each kernel level against those; the files say how they
// were made.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/registry.h"
#include "models_fixture.h"

namespace kvikk {
namespace {

struct Golden {
  const char* folder;
  const char* file;
  const char* expected;
  bool own_expectation;  // a quantized twin: the greedy tokens are of the unquantized model
};

constexpr Golden kGoldens[] = {
    {"llama", "model-q4_0.gguf", "expected-q4_0.f32", true},
    {"llama-rope-llama3", "model.gguf", "expected.f32", false},
    {"qwen2", "model.gguf", "expected.f32", false},
    {"qwen2", "model-q8_0.gguf", "expected-q8_0.f32", true},
    {"gemma3_text", "model.gguf", "expected.f32", false},
};

class GoldenLogits : public testing::TestWithParam<Golden> {};

// All logits of one prompt, fed `chunk` tokens at a time.
std::vector<float> run(LoadedModel& model, const std::vector<TokenId>& tokens,
                       const std::vector<uint32_t>& positions, size_t chunk) {
  const size_t vocabulary = model.model->config().vocabulary;
  std::vector<float> out;
  SequenceKv kv(*model.pool);
  size_t next = 0;
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const size_t count = std::min(chunk, tokens.size() - first);
    Batch batch;
    batch.tokens.assign(tokens.begin() + static_cast<long>(first),
                        tokens.begin() + static_cast<long>(first + count));
    EXPECT_TRUE(kv.reserve(count).ok());
    batch.spans.push_back({&kv, 0, count, first});
    while (next < positions.size() && positions[next] < first + count) {
      batch.output_rows.push_back(positions[next++] - static_cast<uint32_t>(first));
    }
    model.model->forward(*model.compute, batch);
    kv.advance(count);
    kv.drop_unseen();
    for (size_t i = 0; i < batch.output_rows.size(); ++i) {
      const auto row = model.model->logits(*model.compute, i, 1).first(vocabulary);
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

double largest_difference(const std::vector<float>& a, const float* b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

TEST_P(GoldenLogits, ExactAgreesWithTheOriginal) {
  const Golden& golden = GetParam();
  const std::string folder = std::string(KVIKK_TEST_DATA) + "/models/" + golden.folder + "/";
  std::ifstream json(folder + "expected.json");
  const auto expected = nlohmann::json::parse(json);
  const std::vector<float> want = read_floats(folder + golden.expected);
  const auto tokens = expected["short_prompt"].get<std::vector<TokenId>>();
  const auto long_tokens = expected["long_prompt"].get<std::vector<TokenId>>();
  const auto long_positions = expected["long_positions"].get<std::vector<uint32_t>>();
  std::vector<uint32_t> positions(tokens.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<uint32_t>(i);
  for (const CpuFeatures& features : levels_here()) {
    LoadedModel model = load_model(folder + golden.file, features, {.exact = true});
    ASSERT_NE(model.model, nullptr);
    const std::vector<float> got = run(model, tokens, positions, 64);
    const std::vector<float> got_long = run(model, long_tokens, long_positions, 50);
    ASSERT_EQ(got.size() + got_long.size(), want.size());
    EXPECT_LT(largest_difference(got, want.data()), 3e-4) << model.compute->kernels().level;
    EXPECT_LT(largest_difference(got_long, want.data() + got.size()), 3e-4)
        << model.compute->kernels().level;
  }
}

TEST_P(GoldenLogits, FastStaysClose) {
  const Golden& golden = GetParam();
  const std::string folder = std::string(KVIKK_TEST_DATA) + "/models/" + golden.folder + "/";
  std::ifstream json(folder + "expected.json");
  const auto expected = nlohmann::json::parse(json);
  const std::vector<float> want = read_floats(folder + golden.expected);
  const auto tokens = expected["long_prompt"].get<std::vector<TokenId>>();
  const auto positions = expected["long_positions"].get<std::vector<uint32_t>>();
  const size_t vocabulary = expected["vocab_size"].get<size_t>();
  const float* base = want.data() + expected["short_prompt"].size() * vocabulary;
  for (const CpuFeatures& features : levels_here()) {
    LoadedModel model = load_model(folder + golden.file, features, {});
    ASSERT_NE(model.model, nullptr);
    const std::vector<float> got = run(model, tokens, positions, 64);
    double kl = 0;
    for (size_t row = 0; row < positions.size(); ++row) {
      kl += kl_divergence(base + row * vocabulary, got.data() + row * vocabulary, vocabulary);
    }
    // int8 activations cost what the fixtures' notes measured elsewhere, bf16 pages much less.
    EXPECT_LT(kl / static_cast<double>(positions.size()), golden.own_expectation ? 6e-3 : 1.5e-3)
        << model.compute->kernels().level;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenLogits, testing::ValuesIn(kGoldens), [](const auto& test) {
  std::string name = std::string(test.param.folder) + "_" + test.param.file;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST(Registry, UnknownArchitectureNamesWhatIsSupported) {
  auto file = GgufFile::open(std::string(KVIKK_TEST_DATA) + "/gguf/values.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto def = find_model_def(*file);
  ASSERT_FALSE(def.ok());
  for (const ModelDef* known : model_registry()) {
    if (!file->has("general.architecture")) break;
    EXPECT_NE(def.status().message().find(known->architecture), std::string::npos);
  }
}

}  // namespace
}  // namespace kvikk
