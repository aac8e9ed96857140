#pragma once
// Loads the tiny models of tests/data for tests of models/ and engine/.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/model_file.h"

namespace kvikk {

inline std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

// Every kernel level that this machine has, scalar first.
inline std::vector<CpuFeatures> levels_here() {
  const CpuFeatures here = detect_cpu_features();
  std::vector<CpuFeatures> levels = {CpuFeatures{}};
  if (here.avx2) levels.push_back({true, false, false});
  if (here.avx512_vnni) levels.push_back({true, true, false});
  if (here.amx) levels.push_back({true, true, true});
  return levels;
}

inline double kl_divergence(const float* base, const float* test, size_t n) {
  const auto log_sum = [n](const float* x) {
    double max = -INFINITY;
    for (size_t i = 0; i < n; ++i) max = std::fmax(max, static_cast<double>(x[i]));
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - max);
    return max + std::log(sum);
  };
  const double base_sum = log_sum(base);
  const double test_sum = log_sum(test);
  double kl = 0;
  for (size_t i = 0; i < n; ++i) {
    const double p = static_cast<double>(base[i]) - base_sum;
    kl += std::exp(p) * (p - (static_cast<double>(test[i]) - test_sum));
  }
  return kl;
}

struct LoadedModel {
  std::unique_ptr<Compute> compute;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Model> model;
  Status status;  // why there is none, as far as the file is to blame
};

struct TestLoad {
  bool exact = false;
  int threads = 2;
  size_t rows_max = 128;
  size_t context = 512;
};

// A null model when anything failed.
inline LoadedModel load_model(const std::string& path, const CpuFeatures& features, TestLoad how) {
  LoadedModel loaded;
  auto file = ModelFile::open(path);
  if (!file.ok()) {
    loaded.status = file.status();
    return loaded;
  }
  ModelConfig* config = &file->config;
  auto compute = Compute::create(make_kernels(features), how.threads, config->widest(),
                                 Attention::kTileRows, config->head_dim);
  if (!compute.ok()) return loaded;
  loaded.compute = std::move(*compute);
  LoadOptions options;
  options.exact = how.exact;
  auto weights = load_weights(*file->tensors, *config, loaded.compute->pool(), options);
  if (!weights.ok()) {
    loaded.status = weights.status();
    return loaded;
  }
  const KvShape shape = Model::kv_shape(*config, how.exact ? KvFormat::kF32 : KvFormat::kBF16);
  auto pool = PagePool::create(shape, std::vector<size_t>(shape.groups.size(), 40));
  if (!pool.ok()) return loaded;
  loaded.pool = std::make_unique<PagePool>(std::move(*pool));
  auto model = Model::create(file->tensors, *config, std::move(*weights), *loaded.compute,
                             how.rows_max, how.context);
  if (model.ok()) loaded.model = std::move(*model);
  return loaded;
}

}  // namespace kvikk
