#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/mapped_file.h"

namespace kvikk {
namespace {

bool is_aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

TEST(Buffer, IsZeroedAlignedAndWritableToTheEnd) {
  constexpr size_t kHugePage = size_t{2} << 20;
  for (const size_t bytes :
       {size_t{3}, size_t{4097}, kHugePage - 1, kHugePage, kHugePage + 1, 3 * kHugePage - 5}) {
    Result<Buffer> buffer = Buffer::allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_TRUE(is_aligned(buffer->data(), bytes >= kHugePage ? kHugePage : 64)) << bytes;
    for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) {
      EXPECT_EQ(buffer->data()[at], 0);
      buffer->data()[at] = 7;
      EXPECT_EQ(buffer->data()[at], 7);
    }
  }
}

TEST(Buffer, NothingIsAllowed) {
  Result<Buffer> buffer = Buffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(Buffer, TooMuchIsRefused) {
  for (const size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 62}) {
    const Result<Buffer> buffer = Buffer::allocate(bytes);
    ASSERT_FALSE(buffer.ok()) << bytes;
    EXPECT_EQ(buffer.status().code(), StatusCode::kExhausted);
  }
}

TEST(Buffer, MovesItsMemory) {
  Buffer first = std::move(*Buffer::allocate(100));
  uint8_t* data = first.data();
  data[99] = 9;
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  Buffer third;
  third = std::move(second);
  EXPECT_EQ(third.data()[99], 9);
  EXPECT_EQ(third.size(), 100u);
}

class MappedFileTest : public testing::Test {
 protected:
  ~MappedFileTest() override { std::filesystem::remove_all(path_); }
  const std::string path_ = testing::TempDir() + "kvikk-mapped-" + std::to_string(::getpid());
};

TEST_F(MappedFileTest, ShowsTheBytesAlsoAfterDropping) {
  std::string text(100000, 'a');
  text[70000] = 'b';
  std::ofstream(path_) << text;
  Result<MappedFile> file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->path(), path_);
  ASSERT_EQ(file->bytes().size(), text.size());
  EXPECT_EQ(file->bytes()[70000], 'b');
  file->drop(0, text.size());
  file->drop(4000, 10);                // no whole page in it
  file->drop(90000, size_t{1} << 40);  // past the end
  EXPECT_EQ(file->bytes()[70000], 'b');
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes()[99999], 'a');
}

TEST_F(MappedFileTest, CopiesWhatIsInTheFileAndNothingElse) {
  std::ofstream(path_) << "0123456789";
  const Result<MappedFile> file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  uint8_t target[4] = {};
  EXPECT_TRUE(file->read(6, target));
  EXPECT_EQ(std::string(target, target + 4), "6789");
  EXPECT_FALSE(file->read(7, target));
  EXPECT_FALSE(file->read(100, target));
  EXPECT_TRUE(file->read(100, {}));
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  std::ofstream{path_};
  const Result<MappedFile> file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, WhatIsNoFileIsRefusedWithoutHanging) {
  EXPECT_EQ(MappedFile::open(path_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open(path_ + "/below").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open(std::string("a\0b", 3)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::open("").status().code(), StatusCode::kNotFound);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(MappedFile::open(path_).status().code(), StatusCode::kIo);
  const std::string pipe = path_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(pipe).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace kvikk
