// Encoders against what the original implementations (float32) computed for tiny random models: the
// final state of every token, and the laws that make neighbours and threads invisible.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "models/golden_cases.h"

namespace kvikk {
namespace {

struct Encoded {
  std::vector<TokenId> tokens;
  std::vector<float> states;  // [tokens, hidden]
};

Encoded read_encoded(const std::string& name) {
  const std::string folder = std::string(KVIKK_TEST_DATA) + "/models/" + name;
  const nlohmann::json json = read_json(folder + "/encoder.json");
  Encoded out;
  out.tokens = json["tokens"].get<std::vector<TokenId>>();
  out.states = read_floats(folder + "/expected.f32");
  out.states.resize(out.tokens.size() * json["hidden"].get<size_t>());
  return out;
}

TestLoad load_for(size_t tokens, bool exact, int threads = 2) {
  return {.exact = exact, .threads = threads, .rows_max = 2 * tokens, .context = tokens};
}

// The final states of all tokens of texts that share a batch.
std::vector<float> run(LoadedModel& model, const std::vector<std::vector<TokenId>>& texts) {
  std::vector<SequenceKv> caches;
  caches.reserve(texts.size());
  Batch batch;
  for (const std::vector<TokenId>& text : texts) {
    caches.emplace_back(*model.pool);
    EXPECT_TRUE(caches.back().reserve(text.size()).ok());
    batch.spans.push_back({&caches.back(), batch.tokens.size(), text.size(), 0});
    for (const TokenId token : text) {
      batch.output_rows.push_back(static_cast<uint32_t>(batch.tokens.size()));
      batch.tokens.push_back(token);
    }
  }
  model.model->forward(*model.compute, batch);
  const float* states = model.model->outputs();
  return {states, states + batch.tokens.size() * model.model->config().hidden};
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

class Encoder : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  Encoded want() const { return read_encoded(GetParam().first); }
  std::string path() const {
    const auto& [name, file] = GetParam();
    return std::string(KVIKK_TEST_DATA) + "/models/" + name + file;
  }
};

TEST_P(Encoder, ExactAgreesWithTheOriginal) {
  const Encoded expected = want();
  for (const CpuFeatures& features : levels_here()) {
    LoadedModel model = load_model(path(), features, load_for(expected.tokens.size(), true));
    ASSERT_NE(model.model, nullptr) << model.status.message();
    EXPECT_LT(largest_difference(run(model, {expected.tokens}), expected.states), 1e-4)
        << model.compute->kernels().level;
  }
}

// States have a standard deviation of about 1.
TEST_P(Encoder, FastStaysClose) {
  const Encoded expected = want();
  for (const CpuFeatures& features : levels_here()) {
    LoadedModel model = load_model(path(), features, load_for(expected.tokens.size(), false));
    ASSERT_NE(model.model, nullptr) << model.status.message();
    EXPECT_LT(largest_difference(run(model, {expected.tokens}), expected.states), 0.1)
        << model.compute->kernels().level;
  }
}

TEST_P(Encoder, NeighboursAndThreadsAreInvisible) {
  const std::vector<TokenId> a = want().tokens;
  const std::vector<TokenId> b(a.begin() + 7, a.begin() + 90);
  LoadedModel model = load_model(path(), levels_here().back(), load_for(a.size(), false));
  LoadedModel one = load_model(path(), levels_here().back(), load_for(a.size(), false, 1));
  ASSERT_NE(model.model, nullptr) << model.status.message();
  ASSERT_NE(one.model, nullptr) << one.status.message();
  std::vector<float> alone = run(model, {b});
  const std::vector<float> alone_a = run(one, {a});
  alone.insert(alone.end(), alone_a.begin(), alone_a.end());
  const std::vector<float> both = run(model, {b, a});
  ASSERT_EQ(both.size(), alone.size());
  EXPECT_EQ(std::memcmp(both.data(), alone.data(), both.size() * sizeof(float)), 0);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  size_t count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, to.size(), to);
    ++count;
  }
  ASSERT_GT(count, 0u) << from;
}

TEST(OldEncoder, NormsMayHaveTheNamesOfTensorFlow) {
  namespace fs = std::filesystem;
  const fs::path from = std::string(KVIKK_TEST_DATA) + "/models/bert";
  const fs::path to = fs::path(testing::TempDir()) / "old_bert";
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
  std::ifstream file(from / "model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  replace_all(bytes, "LayerNorm.weight\"", "LayerNorm.gamma\" ");
  replace_all(bytes, "LayerNorm.bias\"", "LayerNorm.beta\"");
  std::ofstream(to / "model.safetensors", std::ios::binary) << bytes;

  const Encoded expected = read_encoded("bert");
  LoadedModel model =
      load_model(to.string(), levels_here().back(), load_for(expected.tokens.size(), true));
  ASSERT_NE(model.model, nullptr) << model.status.message();
  EXPECT_LT(largest_difference(run(model, {expected.tokens}), expected.states), 1e-4);
  fs::remove_all(to);
}

INSTANTIATE_TEST_SUITE_P(Families, Encoder,
                         testing::Values(std::pair("bert", ""), std::pair("bert", "/model.gguf"),
                                         std::pair("roberta", "")),
                         [](const auto& test) {
                           return test.param.first + (test.param.second.empty() ? "" : "_gguf");
                         });

}  // namespace
}  // namespace kvikk
