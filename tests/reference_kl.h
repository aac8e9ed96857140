#pragma once
// How far the fast path of a real model is from float32: the mean KL divergence to distributions
// that the original implementation computed on the dequantized weights (tests/data/references; top
// 32 and the rest), and its greedy answers to chats.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/evaluate.h"
#include "weights/catalog.h"

namespace kvikk {

class Reference {
 public:
  explicit Reference(const std::string& name) {
    const std::string folder = std::string(KVIKK_TEST_DATA) + "/references/";
    std::ifstream json(folder + name + ".json");
    info = nlohmann::json::parse(json);
    std::ifstream file(folder + info["binary"].get<std::string>(), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  // Row `row` of an array of 32 four-byte values a row.
  template <class T>
  std::vector<T> row(const char* array, size_t row) const {
    constexpr size_t kTop = 32;
    std::vector<T> values(kTop);
    for (const auto& a : info["arrays"]) {
      if (a["name"] != array) continue;
      const size_t at = a["offset"].get<size_t>() + row * kTop * sizeof(T);
      std::memcpy(values.data(), bytes_.data() + at, kTop * sizeof(T));
    }
    return values;
  }

  nlohmann::json info;

 private:
  std::string bytes_;
};

// KL over the reference's 32 most likely tokens and one bucket for all others.
inline double kl_to_reference(const std::vector<int32_t>& ids, const std::vector<float>& logprobs,
                              std::span<const float> logits) {
  double max = -INFINITY;
  for (float x : logits) max = std::fmax(max, static_cast<double>(x));
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - max);
  const double log_sum = max + std::log(sum);
  double kl = 0;
  double p_rest = 1;
  double q_rest = 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto log_p = static_cast<double>(logprobs[i]);
    const double log_q = static_cast<double>(logits[static_cast<size_t>(ids[i])]) - log_sum;
    kl += std::exp(log_p) * (log_p - log_q);
    p_rest -= std::exp(log_p);
    q_rest -= std::exp(log_q);
  }
  p_rest = std::fmin(1, std::fmax(1e-9, p_rest));
  q_rest = std::fmin(1, std::fmax(1e-9, q_rest));
  return kl + p_rest * std::log(p_rest / q_rest);
}

inline std::unique_ptr<Engine> load_catalog_model(const char* name) {
  const std::string path = model_path(*find_catalog_entry(name), default_models_dir());
  auto file = ModelFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  EngineOptions options;
  options.context = 1100;
  auto engine = Engine::load(std::move(*file), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

// The limits are what llama.cpp reaches on the same rows with its own int8 activations.
inline void expect_close_to_reference(const char* model, const char* name, double kl_limit) {
  const CatalogEntry& entry = *find_catalog_entry(model);
  if (!entry.terms.empty() && !is_fetched(entry, default_models_dir())) {
    GTEST_SKIP() << model << " is not here; KVIKK_ACCEPT_LICENCE=" << model << " accepts its terms";
  }
  const Reference reference(name);
  const auto engine = load_catalog_model(model);
  ASSERT_NE(engine, nullptr);
  double kl = 0;
  size_t rows = 0;
  size_t first_row = 0;
  for (const auto& chunk : reference.info["chunks"]) {
    const auto tokens = chunk["token_ids"].get<std::vector<TokenId>>();
    const auto range = chunk["positions"].get<std::vector<uint32_t>>();
    constexpr uint32_t kRows = 64;
    const uint32_t begin = std::max(range[0], range[1] - kRows);
    std::vector<uint32_t> positions;
    for (uint32_t p = begin; p < range[1]; ++p) positions.push_back(p);
    LogitsRequest request;
    request.tokens = tokens;
    request.positions = positions;
    request.row = [&](size_t i, std::span<const float> logits) {
      const size_t row = first_row + (begin - range[0]) + i;
      kl += kl_to_reference(reference.row<int32_t>("top_ids", row),
                            reference.row<float>("top_logprobs", row), logits);
      ++rows;
      return ok_status();
    };
    const auto done = evaluate_logits(*engine, request);
    ASSERT_TRUE(done.ok()) << done.status().message();
    first_row += range[1] - range[0];
  }
  EXPECT_LE(kl / static_cast<double>(rows), kl_limit) << model;

  for (const auto& chat : reference.info["chats"]) {
    const auto tokens = chat["token_ids"].get<std::vector<TokenId>>();
    const auto want = chat["greedy_tokens"].get<std::vector<TokenId>>();
    const auto gaps = chat["greedy_gaps"].get<std::vector<double>>();
    LogitsRequest request;
    request.tokens = tokens;
    request.greedy = want.size();
    const auto got = evaluate_logits(*engine, request);
    ASSERT_TRUE(got.ok()) << got.status().message();
    // A gap below the rounding of the fast path may be decided either way.
    for (size_t i = 0; i < want.size() && gaps[i] >= 0.5; ++i) EXPECT_EQ((*got)[i], want[i]);
  }
}

}  // namespace kvikk
