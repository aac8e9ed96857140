// Files that appear whole or not at all, and folders that keep the newest.

#include "base/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace kvikk {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/kvikk_files_" + std::to_string(::getpid());
    ASSERT_TRUE(make_folders(folder_).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  size_t count() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

TEST_F(Files, AppearWhole) {
  const std::string path = folder_ + "/a";
  ASSERT_TRUE(write_file_atomically(path, bytes_of("old")).ok());
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(bytes_of("new")).ok());
    EXPECT_EQ(read("a"), "old");
    EXPECT_EQ(count(), 2u);
  }
  EXPECT_EQ(read("a"), "old");
  EXPECT_EQ(count(), 1u);
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file.ok());
  AtomicFile moved = std::move(*file);
  ASSERT_TRUE(moved.write(bytes_of("ne")).ok());
  ASSERT_TRUE(moved.write(bytes_of("w")).ok());
  ASSERT_TRUE(moved.commit().ok());
  EXPECT_EQ(read("a"), "new");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, ErrorsNameTheFile) {
  const Status status = write_file_atomically(folder_ + "/none/a", bytes_of("x"));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("none/a"), std::string::npos) << status.message();
  auto full = open_file("/dev/full", 1);
  if (full.ok()) {
    EXPECT_EQ(write_all(full->get(), bytes_of("x"), "/dev/full").code(), StatusCode::kExhausted);
  }
}

TEST_F(Files, KeepsTheNewest) {
  const auto now = std::filesystem::file_time_type::clock::now();
  for (int i = 0; i < 5; ++i) {
    const std::string path = folder_ + "/" + std::to_string(i) + ".keys";
    ASSERT_TRUE(write_file_atomically(path, bytes_of("x")).ok());
    std::filesystem::last_write_time(path, now - std::chrono::minutes(i));
  }
  ASSERT_TRUE(write_file_atomically(folder_ + "/other", bytes_of("x")).ok());
  keep_newest(folder_, ".keys", 2);
  EXPECT_EQ(count(), 3u);
  EXPECT_EQ(read("0.keys"), "x");
  EXPECT_EQ(read("1.keys"), "x");
  EXPECT_EQ(read("other"), "x");
}

}  // namespace
}  // namespace kvikk
