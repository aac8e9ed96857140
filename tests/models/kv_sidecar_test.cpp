// What was measured of a model's keys comes back from its file, or the file is refused.

#include "models/kv_sidecar.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace kvikk {
namespace {

class KvSidecar : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/kvikk_sidecar_" + std::to_string(::getpid()) + "/a.keys";
    KeyConditioning plain;
    plain.rope_mean = {1.0f, -2.0f};
    plain.mean = {0.5f, 0.25f};
    plain.balance = {1.0f, 3.0f};
    KeyConditioning fitted;
    fitted.forward = {1, 2, 3, 4};
    fitted.backward = {5, 6, 7, 8};
    fitted.deviation = {9, 10};
    fitted.layout.segments[0] = {8, 16};
    fitted.layout.segments[1] = {3, 48};
    entries_ = {plain, fitted};
    ASSERT_TRUE(write_kv_sidecar(path_, "model and codec", entries_).ok());
  }
  void TearDown() override {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void replace(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string path_;
  std::vector<KeyConditioning> entries_;
};

TEST_F(KvSidecar, ComesBack) {
  const auto read = read_kv_sidecar(path_, "model and codec");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    EXPECT_EQ((*read)[i].rope_mean, entries_[i].rope_mean);
    EXPECT_EQ((*read)[i].mean, entries_[i].mean);
    EXPECT_EQ((*read)[i].balance, entries_[i].balance);
    EXPECT_EQ((*read)[i].forward, entries_[i].forward);
    EXPECT_EQ((*read)[i].backward, entries_[i].backward);
    EXPECT_EQ((*read)[i].deviation, entries_[i].deviation);
    for (size_t s = 0; s < kCodedSegmentsMax; ++s) {
      EXPECT_EQ((*read)[i].layout.segments[s].bits, entries_[i].layout.segments[s].bits);
      EXPECT_EQ((*read)[i].layout.segments[s].dims, entries_[i].layout.segments[s].dims);
    }
  }
}

TEST_F(KvSidecar, AnotherKeyIsRefused) {
  EXPECT_FALSE(read_kv_sidecar(path_, "another model!!").ok());
  EXPECT_FALSE(read_kv_sidecar(path_, "").ok());
  EXPECT_FALSE(read_kv_sidecar(path_ + ".not", "model and codec").ok());
}

TEST_F(KvSidecar, DamageIsFound) {
  const std::string whole = bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    replace(whole.substr(0, length));
    EXPECT_FALSE(read_kv_sidecar(path_, "model and codec").ok()) << "cut to " << length;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    replace(changed);
    EXPECT_FALSE(read_kv_sidecar(path_, "model and codec").ok()) << "byte " << at;
  }
}

}  // namespace
}  // namespace kvikk
