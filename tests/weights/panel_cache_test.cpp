// The cache of quantized weights: what it gives back, what it refuses, when it is another one.

#include "weights/panel_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "weights/safetensors.h"
#include "weights/safetensors_builder.h"
#include "weights/temp_folder.h"

namespace kvikk {
namespace {

class PanelCache : public ::testing::Test {
 protected:
  PanelCache() {
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    }
    write_model(1.0f);
  }
  void write_model(float value) {
    SafetensorsBuilder builder;
    builder.floats("a", std::vector<float>(5000, value), "[50, 100]");
    builder.floats("b", {1, 2});
    temp_.write("model.safetensors", builder.build());
  }
  std::string key(const std::string& recipe = "q8_0") const {
    const auto folder = SafetensorsFolder::open(temp_.path());
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    return panel_cache_key(*folder, recipe);
  }
  StatusCode read(const std::string& path, const std::string& key, size_t bytes) {
    std::vector<uint8_t> back(bytes);
    const Status status = read_panel_cache(path, key, back, pool_);
    EXPECT_TRUE(!status.ok() || back == memory_);
    return status.code();
  }

  TempFolder temp_;
  ThreadPool pool_{2};
  std::vector<uint8_t> memory_ = std::vector<uint8_t>((size_t{9} << 20) + 12345);
};

TEST_F(PanelCache, GivesBackWhatWasWritten) {
  const std::string k = key();
  const std::string path = panel_cache_path(temp_.path(), k);
  EXPECT_EQ(path, temp_.path() + "/cache/" + k + ".panels");
  EXPECT_EQ(read(path, k, memory_.size()), StatusCode::kNotFound);
  const Status written = write_panel_cache(path, k, memory_, pool_);
  ASSERT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(read(path, k, memory_.size()), StatusCode::kOk);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp_.file("cache"))) {
    EXPECT_EQ(entry.path(), path);
    ++files;
  }
  EXPECT_EQ(files, 1u);
}

TEST_F(PanelCache, DamageIsNoticed) {
  const std::string k = key();
  const std::string path = panel_cache_path(temp_.path(), k);
  ASSERT_TRUE(write_panel_cache(path, k, memory_, pool_).ok());
  const size_t size = std::filesystem::file_size(path);
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (const size_t at : {size_t{0}, size_t{20}, size_t{82}, size_t{90}, size_t{110}, size_t{4096},
                          size / 2, size - 1}) {
    std::string copy = whole;
    copy[at] = static_cast<char>(copy[at] ^ 1);
    std::ofstream(path, std::ios::binary) << copy;
    EXPECT_EQ(read(path, k, memory_.size()), StatusCode::kDamaged) << at;
  }
  for (const size_t length : {size_t{0}, size_t{100}, size - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, length);
    EXPECT_EQ(read(path, k, memory_.size()), StatusCode::kDamaged) << length;
  }
  std::ofstream(path, std::ios::binary) << whole;
  EXPECT_EQ(read(path, k, memory_.size() - 1), StatusCode::kDamaged);
  EXPECT_EQ(read(path, key("q4_0"), memory_.size()), StatusCode::kDamaged);
  ASSERT_TRUE(write_panel_cache(path, k, memory_, pool_).ok());  // in its place
  EXPECT_EQ(read(path, k, memory_.size()), StatusCode::kOk);
}

TEST_F(PanelCache, TheKeyKnowsWeightsFilesAndRecipe) {
  std::set<std::string> keys = {key("q8_0"), key("q4_0")};
  EXPECT_EQ(key("q8_0"), key("q8_0"));
  const auto path = temp_.file("model.safetensors");
  const auto time = std::filesystem::last_write_time(path);
  write_model(2.0f);
  std::filesystem::last_write_time(path, time);  // only the bytes differ
  keys.insert(key("q8_0"));
  write_model(1.0f);
  std::filesystem::last_write_time(path, time);
  EXPECT_EQ(keys.count(key("q8_0")), 1u);
  std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
  keys.insert(key("q8_0"));
  EXPECT_EQ(keys.size(), 4u);
}

TEST_F(PanelCache, OnlyTheNewestStay) {
  memory_.resize(100);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (int i = 0; i < 12; ++i) {
    const std::string k = key("recipe " + std::to_string(i));
    const std::string path = panel_cache_path(temp_.path(), k);
    ASSERT_TRUE(write_panel_cache(path, k, memory_, pool_).ok());
    std::filesystem::last_write_time(path, now - std::chrono::hours(100 - i));
  }
  temp_.write("cache/old.part", "x");
  std::filesystem::last_write_time(temp_.file("cache/old.part"), now - std::chrono::hours(2));
  temp_.write("cache/new.part", "x");
  const std::string last = key("last");
  ASSERT_TRUE(write_panel_cache(panel_cache_path(temp_.path(), last), last, memory_, pool_).ok());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp_.file("cache"))) {
    if (entry.path().extension() == ".panels") ++files;
  }
  EXPECT_EQ(files, kPanelCachesMax);
  const auto there = [&](const std::string& recipe) {
    return std::filesystem::exists(panel_cache_path(temp_.path(), key(recipe)));
  };
  EXPECT_TRUE(there("last"));
  EXPECT_TRUE(there("recipe 11"));
  EXPECT_TRUE(there("recipe 5"));
  EXPECT_FALSE(there("recipe 4"));
  EXPECT_FALSE(std::filesystem::exists(temp_.file("cache/old.part")));
  EXPECT_TRUE(std::filesystem::exists(temp_.file("cache/new.part")));
}

TEST_F(PanelCache, AFolderThatCannotBeMade) {
  temp_.write("cache", "a file");
  const std::string k = key();
  const Status status = write_panel_cache(panel_cache_path(temp_.path(), k), k, memory_, pool_);
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.message();
}

}  // namespace
}  // namespace kvikk
