// What GgufFile says about damaged and hostile files: one test for each way a file can be wrong.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "weights/gguf.h"
#include "weights/gguf_builder.h"
#include "weights/gguf_walk.h"
#include "weights/temp_folder.h"

namespace kvikk {
namespace {

const std::string kFolder = KVIKK_TEST_DATA "/gguf/";
constexpr uint64_t kHuge = uint64_t{1} << 60;

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Status parse_status(const std::string& bytes) {
  const auto file = GgufFile::parse("f.gguf", as_bytes(bytes));
  return file.status();
}

// The bytes are refused with `code`, by a message that names the file and has each of `parts`.
void expect_refused(const std::string& bytes, StatusCode code,
                    std::initializer_list<std::string_view> parts) {
  const Status status = parse_status(bytes);
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message().find("f.gguf: "), 0u) << status.message();
  for (const std::string_view part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "'" << part << "' is not in: " << status.message();
  }
}

void expect_damaged(const GgufBuilder& builder, std::initializer_list<std::string_view> parts) {
  expect_refused(builder.build(), StatusCode::kDamaged, parts);
}

// --- Not a GGUF file ---------------------------------------------------------------------------

TEST(GgufDamaged, EmptyFile) { expect_refused("", StatusCode::kDamaged, {"is empty"}); }

TEST(GgufDamaged, OnlyTheMagic) {
  expect_refused("GGU", StatusCode::kDamaged, {"ends after 3 bytes"});
  expect_refused("GGUF", StatusCode::kDamaged, {"ends after 4 bytes", "version"});
  expect_refused(std::string("GGUF\3\0\0\0\1", 9), StatusCode::kDamaged, {"the header"});
}

TEST(GgufDamaged, OtherKindsOfFileAreRecognized) {
  const auto expect_kind = [](const std::string& bytes, std::string_view kind) {
    expect_refused(bytes, StatusCode::kUnsupported, {"not a GGUF file", kind});
  };
  expect_kind(std::string("PK\3\4") + std::string(100, 'x'), "zip archive");
  expect_kind("<!DOCTYPE html><html>404</html>", "web page");
  expect_kind("\n<HTML><body>", "web page");
  expect_kind("{\"error\": \"not found\"}", "JSON");
  expect_kind("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer");
  expect_kind(GgufBuilder::number<uint64_t>(64) + "{\"__metadata__\":{}}", "safetensors");
  expect_kind(std::string("\x1F\x8B\x08", 3) + "abcd", "gzip");
  expect_kind("tjgg" + std::string(40, '\1'), "before GGUF");
  expect_kind(std::string("\x7F") + "ELF\2\1\1", "program");
  expect_kind("hello, this is prose\n", "text file");
  expect_kind(std::string(5000, '\0'), "zeros only");
  expect_kind("\x01\x02\xFF\x04", "'\\x01\\x02\\xFF\\x04'");
}

TEST(GgufDamaged, FoldersPipesAndDevicesAreRefused) {
  const TempFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {::testing::TempDir(), pipe, std::string("/dev/zero")}) {
    const Status status = GgufFile::open(path).status();
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_EQ(status.message(), path + ": is not a regular file");
  }
  EXPECT_EQ(GgufFile::open("/no/such.gguf").status().code(), StatusCode::kNotFound);
}

TEST(GgufDamaged, Versions) {
  GgufBuilder builder;
  builder.version = 1;
  expect_refused(builder.build(), StatusCode::kUnsupported, {"version 1", "versions 2 and 3"});
  builder.version = 4;
  expect_refused(builder.build(), StatusCode::kUnsupported, {"version 4", "versions 2 and 3"});
  builder.version = 0x03000000;
  expect_refused(builder.build(), StatusCode::kUnsupported, {"big-endian"});
  builder.version = 0;
  expect_refused(builder.build(), StatusCode::kDamaged, {"version 0", "byte 4"});
  builder.version = 0x12345678;
  expect_refused(builder.build(), StatusCode::kDamaged, {"version 305,419,896"});
}

// --- Counts and lengths ------------------------------------------------------------------------

TEST(GgufDamaged, CountsBeyondTheFile) {
  GgufBuilder builder;
  builder.extra_keys = static_cast<int64_t>(kHuge);
  expect_damaged(builder, {"announces 1,152,921,504,606,846,976 keys"});
  builder.extra_keys = -1;
  expect_damaged(builder, {"announces 18,446,744,073,709,551,615 keys"});
  builder.extra_keys = 0;
  builder.extra_tensors = static_cast<int64_t>(kHuge);
  expect_damaged(builder, {"announces 1,152,921,504,606,846,976 tensors"});
}

TEST(GgufDamaged, MoreKeysThanTheLimit) {
  GgufBuilder builder;
  for (int i = 0; i < 65537; ++i) builder.boolean(std::to_string(i), 1);
  expect_refused(builder.build(), StatusCode::kExhausted, {"65,537 keys", "limit is 65,536"});
}

TEST(GgufDamaged, MoreTensorsThanTheLimit) {
  GgufBuilder builder;
  for (int i = 0; i < 131073; ++i) builder.tensor_at(0, std::to_string(i), {1}, 0, "");
  expect_refused(builder.build(), StatusCode::kExhausted, {"131,073 tensors", "131,072"});
}

TEST(GgufDamaged, FewerKeysThanAnnounced) {
  GgufBuilder builder;
  builder.u32("a", 1);
  builder.extra_keys = 1;
  builder.data_bytes_extra = 64;  // zeros: the next key has an empty name
  expect_damaged(builder, {"key 2 of 2 has an empty name"});
}

TEST(GgufDamaged, StringsLongerThanTheFile) {
  for (const uint64_t length : {uint64_t{100}, kHuge, UINT64_MAX, UINT64_MAX - 7}) {
    GgufBuilder builder;
    builder.key("some.text", 8, GgufBuilder::number(length));
    expect_damaged(builder, {"key 'some.text' has a string of", "at byte"});
    GgufBuilder in_array;
    in_array.key("some.list", 9,
                 GgufBuilder::number<uint32_t>(8) + GgufBuilder::number<uint64_t>(1) +
                     GgufBuilder::number(length));
    expect_damaged(in_array, {"key 'some.list' has a string of"});
  }
}

TEST(GgufDamaged, ArraysLongerThanTheFile) {
  for (const uint32_t type : {0u, 6u, 7u, 8u, 10u}) {
    for (const uint64_t count : {uint64_t{1000}, kHuge, kHuge * 2 + 1, UINT64_MAX}) {
      GgufBuilder builder;
      builder.key("list", 9, GgufBuilder::number(type) + GgufBuilder::number(count) + "12345678");
      expect_damaged(builder, {"key 'list' announces an array of", "bytes follow"});
    }
  }
}

TEST(GgufDamaged, ArraysBeyondTheLimit) {
  GgufBuilder builder;
  builder.key("list", 9,
              GgufBuilder::number<uint32_t>(0) + GgufBuilder::number<uint64_t>((1 << 24) + 1) +
                  std::string((1 << 24) + 1, 'x'));
  expect_refused(builder.build(), StatusCode::kExhausted, {"16,777,217", "limit is 16,777,216"});
}

TEST(GgufDamaged, ArraysOfArrays) {
  GgufBuilder builder;
  builder.key("nested", 9, GgufBuilder::number<uint32_t>(9) + GgufBuilder::number<uint64_t>(1));
  expect_refused(builder.build(), StatusCode::kUnsupported, {"'nested'", "array of arrays"});
}

TEST(GgufDamaged, UnknownValueTypes) {
  GgufBuilder builder;
  builder.key("k", 13, "12345678");
  expect_damaged(builder, {"key 'k' has value type 13", "0 to 12"});
  GgufBuilder in_array;
  in_array.key("k", 9, GgufBuilder::number<uint32_t>(77) + GgufBuilder::number<uint64_t>(1));
  expect_damaged(in_array, {"array of value type 77"});
}

TEST(GgufDamaged, NamesOfWrongLength) {
  GgufBuilder builder;
  builder.u32("", 1);
  expect_damaged(builder, {"key 1 of 1 has an empty name", "at byte 24"});
  GgufBuilder longer;
  longer.u32(std::string(65536, 'k'), 1);
  expect_damaged(longer, {"65,536 bytes", "65,535"});
  GgufBuilder tensor;
  tensor.floats("", {4});
  expect_damaged(tensor, {"tensor 1 of 1 has an empty name"});
  GgufBuilder longer_tensor;
  longer_tensor.floats(std::string(65, 't'), {4});
  expect_damaged(longer_tensor, {"65 bytes", "allows 64"});
}

TEST(GgufDamaged, NamesInMessagesAreMadePrintable) {
  GgufBuilder builder;
  builder.key(std::string_view("a\x1B[31m\0\xFF'\n", 9), 13, "1234");
  expect_damaged(builder, {"'a\\x1B[31m\\x00\\xFF"});
}

TEST(GgufDamaged, DuplicateKeys) {
  GgufBuilder builder;
  builder.u32("general.alignment", 32);
  builder.u32("general.alignment", 64);
  expect_damaged(builder, {"key 'general.alignment' is there twice"});
}

TEST(GgufDamaged, DuplicateTensors) {
  GgufBuilder builder;
  builder.floats("a", {4});
  builder.floats("b", {4});
  builder.floats("a", {4});
  expect_damaged(builder, {"tensor 'a' is there twice"});
}

// --- Values ------------------------------------------------------------------------------------

TEST(GgufDamaged, ValuesThatAreNoNumbers) {
  GgufBuilder builder;
  builder.f32("nan", std::numeric_limits<float>::quiet_NaN());
  builder.f32("infinite", std::numeric_limits<float>::infinity());
  builder.key("large", 12, GgufBuilder::number(1e300));
  builder.array<float>("list", 6, {0.0f, std::numeric_limits<float>::quiet_NaN()});
  builder.boolean("bool", 2);
  builder.array<uint8_t>("bools", 7, {1, 3});
  builder.array<uint64_t>("wide", 10, {UINT64_MAX});
  const std::string bytes = builder.build();
  const auto file = GgufFile::parse("f.gguf", as_bytes(bytes));
  ASSERT_TRUE(file.ok());
  for (const char* key : {"nan", "infinite", "large"}) {
    EXPECT_EQ(file->get_float(key).status().code(), StatusCode::kDamaged) << key;
  }
  EXPECT_NE(file->get_floats("list").status().message().find("element 1"), std::string::npos);
  EXPECT_NE(file->get_bool("bool").status().message().find("must be 0 or 1"), std::string::npos);
  EXPECT_NE(file->get_ints("bools").status().message().find("element 1"), std::string::npos);
  EXPECT_NE(file->get_ints("wide").status().message().find("18,446,744"), std::string::npos);
}

TEST(GgufDamaged, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 48u, 1u << 25, UINT32_MAX}) {
    GgufBuilder builder;
    builder.u32("general.alignment", alignment);
    expect_damaged(builder, {"general.alignment is", "power of two"});
  }
  GgufBuilder text;
  text.string("general.alignment", "32");
  expect_damaged(text, {"'general.alignment' is of type string"});
}

// --- Tensors -----------------------------------------------------------------------------------

TEST(GgufDamaged, Dimensions) {
  GgufBuilder none;
  none.tensor("t", {}, 0, "1234");
  expect_damaged(none, {"tensor 't' has 0 dimensions", "1 to 4"});
  GgufBuilder many;
  many.tensor("t", {1, 1, 1, 1, 1}, 0, "1234");
  expect_damaged(many, {"tensor 't' has 5 dimensions", "1 to 4"});
  for (const auto& shape : std::vector<std::vector<uint64_t>>{{0}, {0, 4}, {4, 0}, {4, 4, 0, 4}}) {
    GgufBuilder zero;
    zero.tensor("t", shape, 0, "1234");
    expect_damaged(zero, {"tensor 't' has the shape [", "no dimension may be 0"});
  }
}

TEST(GgufDamaged, ShapesThatOverflow) {
  const uint64_t half = uint64_t{1} << 32;
  for (const auto& shape : std::vector<std::vector<uint64_t>>{{half, half},
                                                              {kHuge, 32},
                                                              {UINT64_MAX},
                                                              {half, 4, half, 4},
                                                              {uint64_t{1} << 62},
                                                              {uint64_t{1} << 61}}) {
    GgufBuilder builder;
    builder.tensor("t", shape, 0, "1234");
    expect_damaged(builder, {"tensor 't' has the shape", "more than any file can hold"});
  }
  GgufBuilder large;  // fits in 64 bits, but not in the file
  large.tensor("t", {half, 64}, 0, "1234");
  expect_damaged(large, {"tensor 't' ends at byte 1,099,511,"});
}

TEST(GgufDamaged, RowsThatAreNotWholeBlocks) {
  GgufBuilder builder;
  builder.tensor("t", {48, 2}, 8, std::string(102, '\0'));
  expect_damaged(builder, {"tensor 't' of type Q8_0 has rows of 48", "multiple of 32"});
  GgufBuilder k;
  k.tensor("t", {128, 2}, 12, std::string(144, '\0'));
  expect_damaged(k, {"of type Q4_K has rows of 128", "multiple of 256"});
}

TEST(GgufDamaged, TypesThatCannotBeRead) {
  GgufBuilder known;
  known.tensor("blk.0.x", {256}, 40, std::string(144, '\0'));
  expect_refused(known.build(), StatusCode::kUnsupported,
                 {"tensor 'blk.0.x' has type NVFP4, which is not supported; supported: F32, F16, "
                  "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_XS, "
                  "IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, IQ1_M, BF16, TQ1_0, TQ2_0, "
                  "MXFP4"});
  GgufBuilder unknown;
  unknown.tensor("blk.0.x", {256}, 1000, std::string(66, '\0'));
  expect_damaged(unknown, {"type number 1,000", "at byte", "supported: F32"});
}

TEST(GgufDamaged, OffsetsOutOfPlace) {
  for (const uint64_t offset : {uint64_t{4}, uint64_t{16}, uint64_t{33}}) {
    GgufBuilder builder;
    builder.tensor_at(offset, "t", {4}, 0, std::string(16, '\0'));
    expect_damaged(builder, {"tensor 't' has the offset", "multiple of the alignment, 32"});
  }
  for (const uint64_t offset : {uint64_t{1} << 40, uint64_t{1} << 20}) {
    GgufBuilder builder;
    builder.floats("first", {4});
    builder.tensor_at(offset, "t", {4}, 0, "");
    expect_damaged(builder, {"tensor 't' ends at byte", "damaged or its download"});
  }
  // Here offset and size fit in 64 bits each, and their sum wraps around into the file.
  GgufBuilder wrapping;
  wrapping.tensor_at(uint64_t{1} << 63, "t", {(uint64_t{1} << 61) - 1}, 0, "");
  expect_damaged(wrapping, {"tensor 't' has the shape", "more than any file can hold"});
  GgufBuilder overflowing;
  overflowing.tensor_at(UINT64_MAX - 31, "t", {4}, 0, "");
  expect_damaged(overflowing, {"tensor 't' has the offset", "far outside"});
}

TEST(GgufDamaged, OverlappingTensors) {
  GgufBuilder builder;
  builder.tensor_at(0, "a", {16}, 0, std::string(64, '\0'));
  builder.tensor_at(32, "b", {4}, 0, std::string(16, '\0'));
  expect_damaged(builder, {"tensors 'a' and 'b' overlap at byte"});
  GgufBuilder same;
  same.tensor_at(0, "a", {4}, 0, std::string(16, '\0'));
  same.tensor_at(0, "b", {4}, 0, std::string(16, '\0'));
  expect_damaged(same, {"overlap"});
}

TEST(GgufDamaged, ACutFileSaysWhereAndHowLongItShouldBe) {
  GgufBuilder builder;
  builder.floats("blk.0.weight", {8});
  builder.floats("blk.3.ffn_up.weight", {8, 4});
  const size_t whole = builder.build().size();
  builder.data_bytes_extra = -1;
  expect_damaged(builder,
                 {"tensor 'blk.3.ffn_up.weight' ends at byte " + std::to_string(whole) +
                      " but the file has " + std::to_string(whole - 1),
                  "download is incomplete", "the whole file has " + std::to_string(whole)});
}

TEST(GgufDamaged, EveryCutOfAFileIsRefused) {
  std::ifstream in(kFolder + "values.gguf", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ASSERT_TRUE(parse_status(whole).ok());
  // The last bytes are padding after the last tensor; they may be missing.
  const auto file = GgufFile::parse("f.gguf", as_bytes(whole));
  const GgufTensor* last = file->find_tensor("after.padding");
  const auto end = static_cast<size_t>(last->bytes.data() + last->bytes.size() -
                                       reinterpret_cast<const uint8_t*>(whole.data()));
  for (size_t length = 0; length < end; ++length) {
    const std::string cut = whole.substr(0, length);
    const Status status = parse_status(cut);
    ASSERT_EQ(status.code(), StatusCode::kDamaged) << length << ": " << status.message();
  }
  EXPECT_TRUE(parse_status(whole.substr(0, end)).ok());
}

TEST(GgufDamaged, NonFiniteScalesAreLocated) {
  std::string rows(4 * 34, '\0');
  rows.replace(2 * 34, 2, "\xFF\x7F");
  GgufBuilder builder;
  builder.tensor("w", {64, 2}, 8, rows);
  const std::string bytes = builder.build();
  const auto file = GgufFile::parse("f.gguf", as_bytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const GgufTensor& tensor = file->tensors()[0];
  EXPECT_TRUE(file->validate_blocks(tensor, 0, 64).ok());
  for (const uint64_t first : {0u, 64u}) {
    const Status status = file->validate_blocks(tensor, first, 128 - first);
    EXPECT_EQ(status.code(), StatusCode::kDamaged);
    EXPECT_NE(
        status.message().find("tensor 'w' of type Q8_0 has a value that is NaN or infinite in "
                              "block 2"),
        std::string::npos)
        << status.message();
  }
}

// --- Time and chance ---------------------------------------------------------------------------

TEST(GgufDamaged, TheLargestHeaderIsReadWithinASecond) {
  const uint64_t count = 1 << 22;
  GgufBuilder builder;
  builder.key(
      "strings", 9,
      GgufBuilder::number<uint32_t>(8) + GgufBuilder::number(count) + std::string(count * 8, '\0'));
  const std::string bytes = builder.build();
  const std::clock_t start = std::clock();  // processor time: the machine may be busy
  const auto file = GgufFile::parse("f.gguf", as_bytes(bytes));
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_LT(seconds, 1.0);
  EXPECT_EQ(file->get_strings("strings")->size(), count);
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string mutate(std::string data) {
    const size_t head = std::min(data.size(), size_t{1} << (5 + below(10)));
    switch (below(6)) {
      case 0:
        return data.substr(0, below(data.size()));
      case 1:
        for (size_t i = below(8) + 1; i > 0; --i) {
          char& c = data[below(head)];
          c = static_cast<char>(c ^ 1 << below(8));
        }
        return data;
      case 2: {
        const uint64_t values[] = {0, UINT64_MAX, kHuge, uint64_t{1} << 31, uint64_t{1} << 63};
        return data.replace(below(head - 8), 8, GgufBuilder::number(values[below(5)]));
      }
      case 3:
        return data.erase(below(head), below(63) + 1);
      case 4: {
        std::string noise(below(63) + 1, '\0');
        for (char& c : noise) c = static_cast<char>(below(256));
        return data.insert(below(head), noise);
      }
      default: {
        const size_t length = below(63) + 1;
        const size_t a = below(head);
        const size_t b = below(head);
        const std::string from_a = data.substr(a, length);
        const std::string from_b = data.substr(b, length);
        data.replace(a, length, from_b);
        return data.replace(std::min(b, data.size()), length, from_a);
      }
    }
  }

 private:
  size_t below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }
  std::mt19937 random_;
};

// A damaged file is refused with a message or read to the end; the sanitizers see to the rest.
TEST(GgufDamaged, ThousandsOfMutations) {
  int refused = 0;
  for (const char* name : {"types.gguf", "values.gguf", "split-00002-of-00003.gguf"}) {
    std::ifstream in(kFolder + name, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    ASSERT_FALSE(whole.empty());
    for (uint32_t seed = 0; seed < 3000; ++seed) {
      const std::string bytes = Mutator(seed).mutate(whole);
      // An exact allocation, so that a read past the end is seen.
      const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
      const auto file = GgufFile::parse("f.gguf", exact);
      if (file.ok()) {
        EXPECT_GT(walk_gguf(*file), 0u);
      } else {
        ++refused;
        EXPECT_EQ(file.status().message().find("f.gguf: "), 0u) << file.status().message();
        EXPECT_LT(file.status().message().size(), 600u) << file.status().message();
      }
    }
  }
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace kvikk
