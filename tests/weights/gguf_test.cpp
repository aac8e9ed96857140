// What GgufFile reads from good files: metadata of every type, tensors where the file has them,
// split sets.

#include "weights/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "weights/gguf_builder.h"
#include "weights/gguf_walk.h"
#include "weights/temp_folder.h"

namespace kvikk {
namespace {

const std::string kFolder = KVIKK_TEST_DATA "/gguf/";

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

float element(const StoredTensor& tensor, size_t index) {
  float value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof value, sizeof value);
  return value;
}

class GgufValues : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = GgufFile::open(kFolder + "values.gguf");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    file = std::move(*opened);
  }
  GgufFile file;
};

TEST_F(GgufValues, ScalarsOfEveryType) {
  EXPECT_EQ(*file.get_uint("value.u8"), 200u);
  EXPECT_EQ(*file.get_uint("value.u16"), 60000u);
  EXPECT_EQ(*file.get_uint("value.u32"), 4000000000u);
  EXPECT_EQ(*file.get_uint("value.u64"), uint64_t{1} << 63);
  EXPECT_EQ(*file.get_float("value.f32"), 0.1f);
  EXPECT_EQ(*file.get_float("value.f64"), -2.5f);
  EXPECT_TRUE(*file.get_bool("value.true"));
  EXPECT_FALSE(*file.get_bool("value.false"));
  EXPECT_EQ(*file.get_string("value.string"), "gr\xC3\xBC\xC3\x9F dich");
  EXPECT_EQ(*file.get_string("general.architecture"), "test");
}

TEST_F(GgufValues, Arrays) {
  EXPECT_EQ(*file.get_strings("array.string"),
            (std::vector<std::string>{"a", "", "\xE2\x96\x81the", "\xF0\x9F\x98\x80"}));
  EXPECT_EQ(*file.get_ints("array.i32"), (std::vector<int64_t>{-1, 0, 7}));
  EXPECT_EQ(*file.get_ints("array.bool"), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(*file.get_floats("array.f32"), (std::vector<float>{0.5f, -1.25f}));
}

TEST_F(GgufValues, AWrongTypeIsNamedWithTheRightOne) {
  const Status status = file.get_uint("value.string").status();
  EXPECT_EQ(status.code(), StatusCode::kDamaged);
  EXPECT_EQ(status.message(), kFolder +
                                  "values.gguf: key 'value.string' is of type string; it must "
                                  "be an integer");
  EXPECT_FALSE(file.get_float("value.u32").ok());
  EXPECT_FALSE(file.get_bool("value.u8").ok());
  EXPECT_FALSE(file.get_string("array.string").ok());
  EXPECT_FALSE(file.get_strings("array.i32").ok());
  EXPECT_FALSE(file.get_floats("array.i32").ok());
  EXPECT_FALSE(file.get_ints("array.f32").ok());
  EXPECT_FALSE(file.get_ints("value.i32").ok());
}

TEST_F(GgufValues, NegativeIsNotUnsigned) {
  for (const char* key : {"value.i8", "value.i16", "value.i32", "value.i64"}) {
    const Status status = file.get_uint(key).status();
    EXPECT_NE(status.message().find("must not be negative"), std::string::npos) << key;
  }
}

TEST_F(GgufValues, AMissingKeyIsNamed) {
  EXPECT_FALSE(file.has("no.such.key"));
  const Status status = file.get_uint("no.such.key").status();
  EXPECT_EQ(status.code(), StatusCode::kDamaged);
  EXPECT_EQ(status.message(), kFolder + "values.gguf: key 'no.such.key' is missing");
}

TEST_F(GgufValues, TensorsLieWhereTheAlignmentPutsThem) {
  const StoredTensor* small = file.find_tensor("small");
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->shape, (std::vector<uint64_t>{3}));
  EXPECT_EQ(small->bytes.size(), 12u);
  const StoredTensor* padded = file.find_tensor("after.padding");
  ASSERT_NE(padded, nullptr);
  EXPECT_EQ(padded->shape, (std::vector<uint64_t>{4, 3, 2}));  // innermost first
  EXPECT_EQ(padded->elements(), 24u);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(element(*padded, i), static_cast<float>(i));
  EXPECT_EQ((padded->bytes.data() - file.shard(0).bytes().data()) % 64, 0);
  EXPECT_EQ(file.find_tensor("smal"), nullptr);
}

TEST(Gguf, AnyAlignmentIsFollowed) {
  for (const uint32_t alignment : {8u, 16u, 256u, 65536u}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.u32("general.alignment", alignment);
    builder.tensor("one", {1}, 0, GgufBuilder::number(1.5f));
    builder.tensor("two", {1}, 0, GgufBuilder::number(2.5f));
    const std::string bytes = builder.build();
    const auto file = GgufFile::parse("f", as_bytes(bytes));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(element(*file->find_tensor("one"), 0), 1.5f);
    EXPECT_EQ(element(*file->find_tensor("two"), 0), 2.5f);
  }
}

TEST(Gguf, TheFileOutlivesItsCopies) {
  GgufFile copy;
  {
    const auto file = GgufFile::open(kFolder + "values.gguf");
    ASSERT_TRUE(file.ok());
    copy = *file;
  }
  EXPECT_EQ(element(*copy.find_tensor("small"), 2), 2.0f);
  EXPECT_EQ(*copy.get_uint("value.u8"), 200u);
}

TEST(Gguf, AFileWithoutTensorsIsAVocabulary) {
  GgufBuilder builder;
  builder.strings("tokenizer.ggml.tokens", {"a", "b"});
  const std::string bytes = builder.build();
  const auto file = GgufFile::parse("vocabulary.gguf", as_bytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->get_strings("tokenizer.ggml.tokens")->size(), 2u);
}

TEST(Gguf, EmptyArraysAndStringsAreFine) {
  GgufBuilder builder;
  builder.strings("a", {});
  builder.array<float>("b", 6, {});
  builder.string("c", "");
  const std::string bytes = builder.build();
  const auto file = GgufFile::parse("f", as_bytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->get_strings("a")->empty());
  EXPECT_TRUE(file->get_floats("b")->empty());
  EXPECT_EQ(*file->get_string("c"), "");
}

size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  size_t total_pages = 0;
  size_t resident_pages = 0;
  in >> total_pages >> resident_pages;
  return resident_pages * 4096;
}

// A model of a gigabyte (a file with a hole) opens as quickly as a small one: no tensor is touched.
TEST(Gguf, OpeningReadsNoTensorData) {
  const TempFolder folder;
  const std::string path = folder.file("large.gguf");
  GgufBuilder builder;
  builder.tensor_at(0, "large", {1 << 14, 1 << 14}, 0, "");
  std::ofstream(path, std::ios::binary) << builder.build();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + (size_t{1} << 30));
  const size_t before = resident_bytes();
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors()[0].bytes.size(), size_t{1} << 30);
  EXPECT_LT(resident_bytes() - before, size_t{1} << 22);
}

class GgufSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 3; ++i) std::filesystem::copy(kFolder + name(i), path(i));
  }

  static std::string name(int number) {
    return "split-0000" + std::to_string(number) + "-of-00003.gguf";
  }
  std::string path(int number) const { return folder_ / name(number); }
  std::string error(int number = 1) const {
    const auto file = GgufFile::open(path(number));
    return file.ok() ? "" : file.status().message();
  }

  const TempFolder temp_;
  const std::filesystem::path folder_ = temp_.path();
};

TEST_F(GgufSplit, TheFirstFileOpensTheSet) {
  const auto file = GgufFile::open(path(1));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->file_count(), 3u);
  EXPECT_EQ(*file->get_uint("test.block_count"), 5u);
  ASSERT_EQ(file->tensors().size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const StoredTensor* tensor = file->find_tensor("blk." + std::to_string(i) + ".weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->file, i / 2);
    EXPECT_EQ(element(*tensor, 7), static_cast<float>(i));
    const auto whole = file->shard(tensor->file).bytes();
    EXPECT_GE(tensor->bytes.data(), whole.data());
    EXPECT_LE(tensor->bytes.data() + tensor->bytes.size(), whole.data() + whole.size());
  }
  EXPECT_GT(walk_gguf(*file), 0u);
}

TEST_F(GgufSplit, ALaterFileNamesTheFirst) {
  const auto file = GgufFile::open(path(2));
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.status().message(),
            path(2) + ": is file 2 of a set of 3: open the first one, " + path(1));
}

TEST_F(GgufSplit, AMissingFileIsNamed) {
  std::filesystem::remove(path(3));
  const auto file = GgufFile::open(path(1));
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file.status().message(), path(3) +
                                         ": is missing: it is file 3 of the 3 that make up the "
                                         "model; fetch it into the same folder");
}

TEST_F(GgufSplit, ADamagedLaterFileIsNamed) {
  std::filesystem::resize_file(path(2), 250);
  EXPECT_EQ(error().find(path(2) + ": "), 0u) << error();
  std::filesystem::resize_file(path(2), 0);
  EXPECT_EQ(error().find(path(2) + ": is empty"), 0u) << error();
}

TEST_F(GgufSplit, FilesInTheWrongPlaceAreRefused) {
  std::filesystem::copy_file(path(3), path(2), std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(error(), path(2) + ": says that it is file 3 of 3; it should be file 2 of 3");
}

TEST_F(GgufSplit, AStrangerInTheSetIsRefused) {
  std::filesystem::copy_file(kFolder + "values.gguf", path(2),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(error().find("does not say that it belongs to a set"), std::string::npos) << error();
}

TEST_F(GgufSplit, ARenamedFirstFileIsRefused) {
  const std::string renamed = folder_ / "model.gguf";
  std::filesystem::rename(path(1), renamed);
  const auto file = GgufFile::open(renamed);
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(file.status().message().find("must end in -00001-of-00003.gguf"), std::string::npos)
      << file.status().message();
}

// Writes a set of two whose parts the test may bend.
void write_pair(const std::filesystem::path& folder, const std::string& tensor_of_second,
                int32_t tensors_announced) {
  for (uint16_t i = 0; i < 2; ++i) {
    GgufBuilder builder;
    builder.u16("split.no", i);
    builder.u16("split.count", 2);
    builder.i32("split.tensors.count", tensors_announced);
    builder.floats(i == 0 ? "first" : tensor_of_second, {4});
    const std::string bytes = builder.build();
    const auto path = folder / ("pair-0000" + std::to_string(i + 1) + "-of-00002.gguf");
    std::FILE* out = std::fopen(path.c_str(), "wb");
    ASSERT_NE(out, nullptr);
    ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), out), bytes.size());
    std::fclose(out);
  }
}

TEST_F(GgufSplit, ATensorInTwoFilesIsRefused) {
  write_pair(folder_, "first", 2);
  const auto file = GgufFile::open(folder_ / "pair-00001-of-00002.gguf");
  EXPECT_NE(file.status().message().find("00002-of-00002.gguf: tensor 'first' is also in another"),
            std::string::npos)
      << file.status().message();
}

TEST_F(GgufSplit, TheSetHoldsAsManyTensorsAsItSays) {
  write_pair(folder_, "second", 2);
  EXPECT_TRUE(GgufFile::open(folder_ / "pair-00001-of-00002.gguf").ok());
  write_pair(folder_, "second", 3);
  const auto file = GgufFile::open(folder_ / "pair-00001-of-00002.gguf");
  EXPECT_NE(
      file.status().message().find("announces 3 tensors (split.tensors.count) but its 2 files "
                                   "hold 2"),
      std::string::npos)
      << file.status().message();
}

}  // namespace
}  // namespace kvikk
