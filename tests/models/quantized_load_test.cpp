// Weights that are quantized while they are loaded (--weights): the same as those of a file that
// was quantized before, and the same again from the cache.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/config_keys.h"
#include "models/model.h"
#include "models/registry.h"
#include "weights/gguf.h"
#include "weights/temp_folder.h"

namespace kvikk {
namespace {

const std::string kModels = KVIKK_TEST_DATA "/models/";

struct Loaded {
  std::shared_ptr<GgufFile> file;
  ModelWeights weights;
};

Loaded load(const std::string& name, const LoadOptions& options) {
  Loaded loaded;
  auto file = GgufFile::open(kModels + name);
  EXPECT_TRUE(file.ok()) << file.status().message();
  loaded.file = std::make_shared<GgufFile>(std::move(file.value()));
  auto keys = ConfigKeys::of(*loaded.file);
  EXPECT_TRUE(keys.ok()) << keys.status().message();
  auto config = read_model_config(*keys);
  EXPECT_TRUE(config.ok()) << config.status().message();
  ThreadPool pool(2);
  auto weights = load_weights(*loaded.file, *config, pool, options);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  loaded.weights = std::move(weights.value());
  return loaded;
}

std::vector<const Matrix*> matrices_of(const ModelWeights& weights) {
  std::vector<const Matrix*> all;
  for (const LayerWeights& layer : weights.layers) {
    for (const Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      all.push_back(&linear->matrix);
    }
  }
  all.push_back(&weights.head.matrix);
  return all;
}

bool same_bytes(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.bytes() == b.bytes() &&
         std::memcmp(a.panels, b.panels, a.bytes()) == 0;
}

LoadOptions quantized(DType type, const std::string& cache_dir = "") {
  LoadOptions options;
  options.weights = type;
  options.cache_dir = cache_dir;
  return options;
}

TEST(QuantizedLoad, IsWhatAQuantizedFileHolds) {
  const Loaded file = load("qwen2/model-q8_0.gguf", {});
  const Loaded own = load("qwen2/model.gguf", quantized(DType::kQ8_0));
  const auto expected = matrices_of(file.weights);
  const auto actual = matrices_of(own.weights);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i]->format, PanelFormat::kQ8);
    EXPECT_TRUE(same_bytes(*actual[i], *expected[i])) << "matrix " << i;
  }
}

TEST(QuantizedLoad, FourBitsButForTheHeadAndOddSizes) {
  const Loaded own = load("qwen2/model.gguf", quantized(DType::kQ4_0));
  const auto matrices = matrices_of(own.weights);
  for (size_t i = 0; i + 1 < matrices.size(); ++i) {
    EXPECT_EQ(matrices[i]->format, PanelFormat::kQ4) << i;
  }
  EXPECT_EQ(matrices.back()->format, PanelFormat::kQ8);
  const Loaded k = load("qwen2/model.gguf", quantized(DType::kQ4_K));
  for (const Matrix* matrix : matrices_of(k.weights)) {
    const bool fits = matrix->inputs % 256 == 0 && matrix != &k.weights.head.matrix;
    EXPECT_EQ(matrix->format, fits ? PanelFormat::kQ4K : PanelFormat::kQ8);
  }
}

TEST(QuantizedLoad, AQuantizedFileStaysAsItIs) {
  const Loaded plain = load("qwen2/model-q8_0.gguf", {});
  const Loaded asked = load("qwen2/model-q8_0.gguf", quantized(DType::kQ4_0));
  const auto expected = matrices_of(plain.weights);
  const auto actual = matrices_of(asked.weights);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(same_bytes(*actual[i], *expected[i]));
}

TEST(QuantizedLoad, TheCacheGivesTheSame) {
  const TempFolder temp;
  const Loaded without = load("qwen2/model.gguf", quantized(DType::kQ4_0));
  size_t packed = 0;
  LoadOptions options = quantized(DType::kQ4_0, temp.path());
  options.progress = [&](uint64_t, uint64_t) { ++packed; };
  const Loaded first = load("qwen2/model.gguf", options);
  EXPECT_GT(packed, 0u);
  packed = 0;
  const Loaded second = load("qwen2/model.gguf", options);
  EXPECT_EQ(packed, 0u);  // nothing was packed
  const auto expected = matrices_of(without.weights);
  for (const Loaded* cached : {&first, &second}) {
    const auto actual = matrices_of(cached->weights);
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(same_bytes(*actual[i], *expected[i]));
  }
  // A damaged file is made anew.
  const auto file = std::filesystem::directory_iterator(temp.file("cache"))->path();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Loaded third = load("qwen2/model.gguf", options);
  EXPECT_GT(packed, 0u);
  EXPECT_TRUE(same_bytes(third.weights.head.matrix, without.weights.head.matrix));
  packed = 0;
  load("qwen2/model.gguf", options);
  EXPECT_EQ(packed, 0u);
  // Another method has another file; a model that needs no quantizing has none.
  options.weights = DType::kQ8_0;
  load("qwen2/model.gguf", options);
  load("qwen2/model-q8_0.gguf", options);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp.file("cache"))) {
    files += entry.path().extension() == ".panels" ? 1 : 0;
  }
  EXPECT_EQ(files, 2u);
}

}  // namespace
}  // namespace kvikk
