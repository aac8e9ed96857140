// SafetensorsFolder: what it reads, and what it says about folders and files that are wrong.

#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <string>

#include "weights/safetensors_builder.h"
#include "weights/safetensors_walk.h"
#include "weights/temp_folder.h"
#include "weights/tensor_rows.h"

namespace kvikk {
namespace {

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// `status` has `code` and its message each of `parts`.
void expect_status(const Status& status, StatusCode code,
                   std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code)) << status.message();
  for (const std::string_view part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "'" << part << "' is not in: " << status.message();
  }
}

void expect_refused(const std::string& bytes, std::initializer_list<std::string_view> parts,
                    StatusCode code = StatusCode::kDamaged) {
  const auto folder = SafetensorsFolder::parse("m.safetensors", as_bytes(bytes));
  expect_status(folder.status(), code, parts);
  EXPECT_EQ(folder.status().message().find("m.safetensors: "), 0u) << folder.status().message();
}

// --- What is read ------------------------------------------------------------------------------

TEST(Safetensors, ASingleFile) {
  const TempFolder temp;
  SafetensorsBuilder builder;
  builder.metadata();
  builder.floats("a", {1, 2, 3, 4, 5, 6}, "[2, 3]");
  builder.tensor("b.bf16", "BF16", "[2]", std::string("\x80\x3f\x00\x40", 4));
  builder.tensor("scalar", "F16", "[]", std::string("\x00\x3c", 2));
  builder.tensor("ids", "I64", "[1]", std::string(8, '\1'));
  builder.tensor("empty", "F32", "[0, 4]", "");
  builder.padding = "     ";
  temp.write("model.safetensors", builder.build());
  const auto folder = SafetensorsFolder::open(temp.path() + "//");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->path(), temp.path());
  EXPECT_EQ(folder->file_count(), 1u);
  ASSERT_EQ(folder->tensors().size(), 5u);
  const StoredTensor* a = folder->find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a, &folder->tensors()[0]);
  EXPECT_EQ(a->type, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<uint64_t>{3, 2}));  // innermost first
  EXPECT_EQ(a->bytes.size(), 24u);
  EXPECT_TRUE(folder->validate_blocks(*a, 0, 6).ok());
  folder->drop(*a);
  float last = 0;
  std::memcpy(&last, a->bytes.data() + 20, 4);
  EXPECT_EQ(last, 6.0f);
  float row[3] = {};
  fetch_row(*folder, *a, 1, row);
  EXPECT_EQ(std::vector<float>(row, row + 3), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(folder->find_tensor("scalar")->elements(), 1u);
  EXPECT_EQ(folder->find_tensor("empty")->elements(), 0u);
  EXPECT_EQ(folder->find_tensor("ids")->type, DType::kI64);
  EXPECT_EQ(folder->find_tensor("c"), nullptr);
}

class SafetensorsSet : public ::testing::Test {
 protected:
  SafetensorsSet() {
    one_.floats("a", {1});
    two_.floats("b", {2});
    two_.floats("c", {3});
    index("\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"");
    write();
  }
  void write() {
    temp_.write("one.safetensors", one_.build());
    temp_.write("two.safetensors", two_.build());
  }
  void index(const std::string& map) {
    temp_.write("model.safetensors.index.json",
                R"({"metadata":{"total_size":12},"weight_map":{)" + map + "}}");
  }
  void expect_error(StatusCode code, std::initializer_list<std::string_view> parts) {
    const auto folder = SafetensorsFolder::open(temp_.path());
    expect_status(folder.status(), code, parts);
    EXPECT_EQ(folder.status().message().find(temp_.path()), 0u) << folder.status().message();
  }

  TempFolder temp_;
  SafetensorsBuilder one_;
  SafetensorsBuilder two_;
};

TEST_F(SafetensorsSet, IsReadAsOneTable) {
  const auto folder = SafetensorsFolder::open(temp_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->file_count(), 2u);
  EXPECT_EQ(folder->tensors().size(), 3u);
  EXPECT_EQ(folder->find_tensor("a")->file, 0u);
  EXPECT_EQ(folder->find_tensor("c")->file, 1u);
  EXPECT_EQ(folder->file_path(1), temp_.file("two.safetensors"));
}

TEST_F(SafetensorsSet, AMissingFile) {
  std::filesystem::remove(temp_.file("two.safetensors"));
  expect_error(StatusCode::kNotFound, {"two.safetensors: is missing", "2 files"});
}

TEST_F(SafetensorsSet, FilesOutsideOfTheFolder) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "", ".", "..", "a\\\\b", "a/b"}) {
    index("\"a\":\"" + std::string(name) + "\"");
    expect_error(StatusCode::kDamaged, {"weight_map", "in the same folder"});
  }
  index("\"a\":7");
  expect_error(StatusCode::kDamaged, {"weight_map", "number"});
}

TEST_F(SafetensorsSet, TensorsThatAreNotWhereTheIndexSays) {
  index("\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"");
  expect_error(StatusCode::kDamaged,
               {"index.json", "'a' should be in two.safetensors", "one.safetensors"});
  index("\"d\":\"two.safetensors\"");
  expect_error(StatusCode::kDamaged, {"'d' should be in two.safetensors", "does not have it"});
}

TEST_F(SafetensorsSet, ATensorInTwoFiles) {
  two_.floats("a", {9});
  write();
  expect_error(StatusCode::kDamaged, {"two.safetensors", "'a'", "also in", "one.safetensors"});
}

TEST_F(SafetensorsSet, AnIndexThatIsNone) {
  const auto expect = [&](const std::string& text, std::string_view part) {
    temp_.write("model.safetensors.index.json", text);
    expect_error(StatusCode::kDamaged, {"index.json", part});
  };
  expect("", "not valid JSON");
  expect("{\"weight_map\":", "byte 15");
  expect("[]", "no object weight_map");
  expect("{\"weight_map\":[]}", "no object weight_map");
  expect("{\"weight_map\":{}}", "is empty");
  expect(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "is there twice");
  temp_.write("model.safetensors.index.json", std::string(100000, '['));
  EXPECT_FALSE(SafetensorsFolder::open(temp_.path()).ok());
  std::string deep = "{\"weight_map\":" + std::string(80, '[') + std::string(80, ']') + "}";
  temp_.write("model.safetensors.index.json", deep);
  expect_error(StatusCode::kExhausted, {"deeper than 64"});
}

TEST(Safetensors, FoldersWithoutWeights) {
  const TempFolder temp;
  expect_status(SafetensorsFolder::open(temp.file("none")).status(), StatusCode::kNotFound,
                {"is no folder"});
  expect_status(SafetensorsFolder::open(temp.path()).status(), StatusCode::kNotFound,
                {"no model.safetensors"});
  temp.write("pytorch_model.bin", "x");
  expect_status(SafetensorsFolder::open(temp.path()).status(), StatusCode::kNotFound,
                {"convert them to safetensors"});
  std::filesystem::create_directory(temp.file("model.safetensors"));
  expect_status(SafetensorsFolder::open(temp.path()).status(), StatusCode::kIo,
                {"not a regular file"});
}

// --- Damaged files -----------------------------------------------------------------------------

TEST(SafetensorsDamaged, TheStart) {
  expect_refused("", {"ends after 0 bytes"});
  expect_refused("1234567", {"ends after 7 bytes"});
  expect_refused("version https://git-lfs.github.com/spec/v1\n", {"Git LFS pointer"});
  expect_refused("<!DOCTYPE html>", {"header of", "format allows 100,000,000"});
  expect_refused(SafetensorsBuilder::file("{}", "", 1), {"header of 3 bytes", "only 2 follow"});
  expect_refused(std::string("\0\0\0\0\0\0\0\0", 8), {"'{'"});
  expect_refused(SafetensorsBuilder::file("[]", ""), {"'{'"});
  expect_refused(SafetensorsBuilder::file(" {}", ""), {"'{'"});
  expect_refused(std::string(8, '\xff'), {"18,446,744,073,709,551,615"});
}

TEST(SafetensorsDamaged, NoTensorsIsNoFault) {
  EXPECT_TRUE(SafetensorsFolder::parse("m", as_bytes(SafetensorsBuilder::file("{}  ", ""))).ok());
}

TEST(SafetensorsDamaged, TheHeaderIsNoJson) {
  const auto refuse = [](const std::string& header, std::string_view part) {
    expect_refused(SafetensorsBuilder::file(header, ""), {"header", part});
  };
  refuse("{\"a\":", "byte");
  refuse("{} x", "not valid JSON");
  refuse("{\"\xff\":{}}", "not valid JSON");
  refuse("{\"a\":{\"dtype\":\"F32\",}}", "not valid JSON at byte");
}

TEST(SafetensorsDamaged, TheHeaderIsOtherJson) {
  const auto refuse = [](const std::string& entries, std::string_view part) {
    expect_refused(SafetensorsBuilder::file("{" + entries + "}", ""), {part});
  };
  refuse(R"("a":1)", "has 1 where an object");
  refuse(R"("a":-1)", "has -1 where");
  refuse(R"("a":1.5)", "has 1.5 where");
  refuse(R"("a":null)", "has null where");
  refuse(R"("a":true)", "has a bool where");
  refuse(R"("a":[])", "has a list where");
  refuse(R"("a":"F32")", "has the string 'F32' where");
  refuse(R"("a":{})", "has no dtype");
  refuse(R"("a":{"dtype":"F32"})", "has no shape");
  refuse(R"("a":{"dtype":"F32","shape":[]})", "has no data_offsets");
  refuse(R"("a":{"dtype":"F32","dtype":"F32"})", "has 'dtype' twice");
  refuse(R"("a":{"dtype":3})", "has 3 where the name of a type");
  refuse(R"("a":{"shape":3})", "has 3 where a list of numbers");
  refuse(R"("a":{"shape":[[3]]})", "has a list where whole numbers");
  refuse(R"("a":{"shape":[-3]})", "has -3 where whole numbers");
  refuse(R"("a":{"shape":[1e3]})", "has 1e3 where whole numbers");
  refuse(R"("a":{"shape":[{}]})", "has an object where whole numbers");
  refuse(R"("a":{"shape":[18446744073709551616]})", "where whole numbers");
  refuse(R"("a":{"color":3})", "has key 'color' where");
  refuse(R"("":{})", "name of 0 bytes");
  refuse(R"("__metadata__":3)", "__metadata__");
  refuse(R"("__metadata__":"s")", "__metadata__");
  refuse(R"("__metadata__":{"a":{}})", "__metadata__");
  refuse(R"("__metadata__":{"a":1})", "__metadata__");
  refuse(R"("__metadata__":{},"__metadata__":{})", "__metadata__ twice");
  expect_refused(SafetensorsBuilder::file(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})", ""),
                 {"more than 8 numbers"}, StatusCode::kExhausted);
  expect_refused(SafetensorsBuilder::file(R"({"a":{"dtype":"F6_E3M2"}})", ""),
                 {"tensor 'a' has type 'F6_E3M2'", "supported: F32"}, StatusCode::kUnsupported);
}

TEST(SafetensorsDamaged, NestingIsRefusedWhereItBegins) {
  expect_refused(SafetensorsBuilder::file("{\"a\":" + std::string(1 << 20, '['), ""), {"a list"});
}

TEST(SafetensorsDamaged, SizesThatDoNotAgree) {
  const auto refuse = [](const char* type, const char* shape, uint64_t begin, uint64_t end,
                         std::initializer_list<std::string_view> parts) {
    SafetensorsBuilder builder;
    builder.entry("a", type, shape, begin, end);
    builder.data(std::string(64, '\0'));
    expect_refused(builder.build(), parts);
  };
  refuse("F32", "[4, 4]", 0, 60, {"F32 and shape [4 x 4] takes 64 bytes", "give it 60"});
  refuse("F16", "[4, 4]", 0, 64, {"takes 32 bytes", "give it 64"});
  refuse("F32", "[4294967296, 4294967296]", 0, 0, {"more than 2^64"});
  refuse("F64", "[2305843009213693952]", 0, 0, {"more than 2^64"});
  refuse("F32", "[4]", 16, 0, {"not [begin, end]"});
}

TEST(SafetensorsDamaged, OffsetsMustBeTwo) {
  for (const char* offsets : {"[]", "[0]", "[0,4,4]"}) {
    SafetensorsBuilder builder;
    builder.raw(R"("a":{"dtype":"F32","shape":[1],"data_offsets":)" + std::string(offsets) + "}");
    builder.data("1234");
    expect_refused(builder.build(), {"not [begin, end]"});
  }
}

TEST(SafetensorsDamaged, GapsOverlapsAndEnds) {
  const auto refuse = [](uint64_t first, uint64_t second, size_t data,
                         std::initializer_list<std::string_view> parts) {
    SafetensorsBuilder builder;
    builder.entry("a", "F32", "[2]", first, first + 8);
    builder.entry("b", "F32", "[2]", second, second + 8);
    builder.data(std::string(data, '\0'));
    expect_refused(builder.build(), parts);
  };
  refuse(0, 4, 12, {"tensors 'a' and 'b' overlap at byte"});
  refuse(0, 0, 8, {"overlap"});
  refuse(8, 4, 16, {"begins at byte 4 of the data", "ends at 0"});
  refuse(0, 12, 20, {"'b' begins at byte 12", "ends at 8"});
  refuse(0, 8, 12, {"'b' ends at byte 16 of the data but the file has 12", "incomplete"});
  refuse(0, 8, 17, {"1 bytes after the last tensor"});
  refuse(8, 0, 0, {"incomplete"});
  const uint64_t end = std::numeric_limits<uint64_t>::max() - 7;
  refuse(0, end - 8, 8, {"begins at byte"});
}

TEST(SafetensorsDamaged, NamesThatOccurTwice) {
  SafetensorsBuilder builder;
  builder.floats("a", {1});
  builder.floats("a", {2});
  expect_refused(builder.build(), {"tensor 'a' is there twice"});
}

TEST(SafetensorsDamaged, EveryTruncationIsNoticed) {
  SafetensorsBuilder builder;
  builder.metadata();
  builder.floats("a", {1, 2, 3});
  builder.tensor("b", "BF16", "[3, 1]", "abcdef");
  const std::string whole = builder.build();
  ASSERT_TRUE(SafetensorsFolder::parse("m", as_bytes(whole)).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string part = whole.substr(0, length);  // its own memory: a read beyond is seen
    EXPECT_FALSE(SafetensorsFolder::parse("m", as_bytes(part)).ok()) << length;
  }
}

TEST(SafetensorsDamaged, RandomDamageNeverHarms) {
  SafetensorsBuilder builder;
  builder.floats("a.weight_scale", {1, 2}, "[2, 1]");
  builder.tensor("a.weight", "F8_E4M3", "[2, 3]", "abcdef");
  builder.tensor("x_blocks", "U8", "[1, 2, 1, 16]", std::string(32, 'b'));
  builder.tensor("x_scales", "U8", "[1, 2, 1]", "ss");
  const std::string whole = builder.build();
  const auto unharmed = SafetensorsFolder::parse("m", as_bytes(whole));
  ASSERT_TRUE(unharmed.ok()) << unharmed.status().message();
  EXPECT_EQ(unharmed->tensors().size(), 2u);
  EXPECT_GT(walk_safetensors(*unharmed), 0u);
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string copy = whole;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      copy[random() % copy.size()] = static_cast<char>(random());
    }
    const auto folder = SafetensorsFolder::parse("m", as_bytes(copy));
    if (folder.ok()) walk_safetensors(*folder);
  }
}

TEST(SafetensorsDamaged, WeightsThatAreNoNumbers) {
  SafetensorsBuilder builder;
  builder.floats("a", {1, 2, std::numeric_limits<float>::infinity()});
  builder.tensor("b", "F8_E4M3", "[1, 4]", "\x01\x7f\x01\x01");
  builder.floats("c_scale", {std::numeric_limits<float>::quiet_NaN()});
  builder.tensor("c", "F8_E4M3", "[1, 4]", "\x01\x01\x01\x01");
  builder.tensor("x_blocks", "U8", "[2, 1, 16]", std::string(32, 'b'));
  builder.tensor("x_scales", "U8", "[2, 1]", "s\xff");
  builder.tensor("ids", "I64", "[1]", std::string(8, '\1'));
  const std::string bytes = builder.build();
  const auto folder = SafetensorsFolder::parse("m", as_bytes(bytes));
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const StoredTensor* a = folder->find_tensor("a");
  EXPECT_TRUE(folder->validate_blocks(*a, 0, 2).ok());
  const auto at = static_cast<size_t>(a->bytes.data() - as_bytes(bytes).data()) + 8;
  EXPECT_LT(at, 1000u);
  expect_status(folder->validate_blocks(*a, 1, 2), StatusCode::kDamaged,
                {"m: tensor 'a'", "at byte " + std::to_string(at)});
  expect_status(folder->validate_blocks(*folder->find_tensor("b"), 0, 4), StatusCode::kDamaged,
                {"tensor 'b' has a weight"});
  expect_status(folder->validate_blocks(*folder->find_tensor("c"), 0, 4), StatusCode::kDamaged,
                {"tensor 'c' has a scale"});
  expect_status(folder->validate_blocks(*folder->find_tensor("ids"), 0, 1),
                StatusCode::kUnsupported, {"'ids' has elements of type I64"});
  const StoredTensor* x = folder->find_tensor("x");
  ASSERT_NE(x, nullptr);
  EXPECT_TRUE(folder->validate_blocks(*x, 0, 32).ok());
  expect_status(folder->validate_blocks(*x, 32, 32), StatusCode::kDamaged, {"scale"});
}

// --- Pairs of values and scales ----------------------------------------------------------------

std::string zeros(size_t n) { return std::string(n, '\0'); }

const StoredTensor* only_tensor(const SafetensorsFolder& folder, std::string_view name) {
  EXPECT_EQ(folder.tensors().size(), 1u);
  return folder.find_tensor(name);
}

TEST(SafetensorsPairs, Fp8Scales) {
  const auto blocks_of = [](const std::string& shape, const std::string& scale_shape,
                            const std::string& suffix, size_t scales) {
    SafetensorsBuilder builder;
    builder.tensor("l.weight", "F8_E4M3", shape, zeros(200 * 300));
    builder.floats("l." + suffix, std::vector<float>(scales, 1.0f), scale_shape);
    builder.floats("l.input_scale", {1});
    const std::string bytes = builder.build();
    const auto folder = SafetensorsFolder::parse("m", as_bytes(bytes));
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    if (!folder.ok()) return std::pair<uint64_t, uint64_t>();
    const StoredTensor* tensor = only_tensor(*folder, "l.weight");
    return std::pair(tensor->scales.block_rows, tensor->scales.block_columns);
  };
  using Sides = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(blocks_of("[200, 300]", "[2, 3]", "weight_scale_inv", 6), Sides(128, 128));
  EXPECT_EQ(blocks_of("[200, 300]", "[200, 1]", "weight_scale", 200), Sides(1, 300));
  EXPECT_EQ(blocks_of("[200, 300]", "[200]", "weight_scale", 200), Sides(1, 300));
  EXPECT_EQ(blocks_of("[200, 300]", "[1]", "weight_scale", 1), Sides(200, 300));
  EXPECT_EQ(blocks_of("[200, 300]", "[]", "weight_scale", 1), Sides(200, 300));
  SafetensorsBuilder wrong;
  wrong.tensor("l.weight", "F8_E4M3", "[200, 300]", zeros(60000));
  wrong.floats("l.weight_scale_inv", std::vector<float>(4), "[2, 2]");
  expect_refused(wrong.build(), {"'l.weight_scale_inv' has the shape [2 x 2]", "[200 x 300]"});
  SafetensorsBuilder integers;
  integers.tensor("l.weight", "F8_E4M3", "[1, 1]", "1");
  integers.tensor("l.weight_scale", "I32", "[1]", "1234");
  expect_refused(integers.build(), {"scales of type I32"}, StatusCode::kUnsupported);
}

TEST(SafetensorsPairs, TheBlockSizeOfTheConfiguration) {
  const TempFolder temp;
  SafetensorsBuilder builder;
  builder.tensor("l.weight", "F8_E4M3", "[200, 300]", zeros(60000));
  builder.floats("l.weight_scale_inv", std::vector<float>(4 * 10), "[4, 10]");
  temp.write("model.safetensors", builder.build());
  temp.write("config.json", R"({"quantization_config":{"weight_block_size":[64, 32]}})");
  const auto folder = SafetensorsFolder::open(temp.path());
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(only_tensor(*folder, "l.weight")->scales.block_rows, 64u);
  EXPECT_EQ(only_tensor(*folder, "l.weight")->scales.block_columns, 32u);
  for (const char* size : {"3", "[64]", "[0, 1]", "[64, -1]", "[64, 1e9]", "[64, 1000000]"}) {
    temp.write("config.json",
               R"({"quantization_config":{"weight_block_size":)" + std::string(size) + "}}");
    expect_status(SafetensorsFolder::open(temp.path()).status(), StatusCode::kDamaged,
                  {"config.json", "weight_block_size"});
  }
}

TEST(SafetensorsPairs, Mxfp4) {
  SafetensorsBuilder builder;
  builder.tensor("e.gate_up_proj_blocks", "U8", "[2, 6, 3, 16]", zeros(2 * 6 * 3 * 16));
  builder.tensor("e.gate_up_proj_scales", "U8", "[2, 6, 3]", zeros(36));
  const std::string bytes = builder.build();
  const auto folder = SafetensorsFolder::parse("m", as_bytes(bytes));
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const StoredTensor* tensor = only_tensor(*folder, "e.gate_up_proj");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type, DType::kF4_E2M1);
  EXPECT_EQ(tensor->shape, (std::vector<uint64_t>{96, 6, 2}));
  EXPECT_EQ(tensor->scales.type, DType::kF8_E8M0);
  EXPECT_EQ(tensor->scales.block_rows, 1u);
  EXPECT_EQ(tensor->scales.block_columns, 32u);
  EXPECT_EQ(tensor->scales.bytes.size(), 36u);

  SafetensorsBuilder wrong;
  wrong.tensor("x_blocks", "U8", "[2, 3, 16]", zeros(96));
  wrong.tensor("x_scales", "U8", "[3, 2]", zeros(6));
  expect_refused(wrong.build(), {"x_blocks", "[2 x 3 x 16]", "x_scales", "[3 x 2]"});
  SafetensorsBuilder twice;
  twice.tensor("x_blocks", "U8", "[1, 1, 16]", zeros(16));
  twice.tensor("x_scales", "U8", "[1, 1]", zeros(1));
  twice.floats("x", {1});
  expect_refused(twice.build(), {"'x' is there twice", "pair"});
}

// Real checkpoints of every family, where they are at hand.
TEST(Safetensors, TheSharedFixturesOpen) {
  const char* shared = std::getenv("KVIKK_SHARED_DATA");
  if (shared == nullptr) GTEST_SKIP() << "KVIKK_SHARED_DATA is not set";
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(shared) + "/fixtures")) {
    if (!entry.is_directory()) continue;
    const auto folder = SafetensorsFolder::open(entry.path());
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_GT(folder->tensors().size(), 10u) << entry.path();
    for (const StoredTensor& tensor : folder->tensors()) {
      EXPECT_TRUE(folder->validate_blocks(tensor, 0, tensor.elements()).ok());
    }
    ++folders;
  }
  EXPECT_GE(folders, 20u);
}

}  // namespace
}  // namespace kvikk
