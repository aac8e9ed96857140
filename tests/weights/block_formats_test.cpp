// Block decoders against the values that the gguf package computes (tools/make_gguf_goldens.py).

#include "weights/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "weights/gguf.h"

namespace kvikk {
namespace {

const std::string kFolder = KVIKK_TEST_DATA "/gguf/";

std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

void expect_golden_values(const std::string& name) {
  const auto file = GgufFile::open(kFolder + name);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::vector<float> expected = read_floats(kFolder + "types.f32");
  size_t at = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    EXPECT_EQ(tensor.name, std::string("tensor.") + dtype_info(tensor.type).name);
    ASSERT_EQ(tensor.shape.size(), 2u);
    std::vector<float> values(tensor.elements());
    dequantize_row(tensor.type, tensor.bytes.data(), values.data(), values.size());
    ASSERT_LE(at + values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {  // bits: -0 differs from 0
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[at + i]))
          << tensor.name << " element " << i << ": " << values[i] << ", not " << expected[at + i];
    }
    EXPECT_TRUE(file->validate_blocks(tensor, 0, tensor.elements()).ok()) << tensor.name;
    at += values.size();
  }
  EXPECT_EQ(at, expected.size());
  EXPECT_EQ(file->tensors().size(), static_cast<size_t>(DType::kTQ2_0) + 1);
}

TEST(BlockFormats, EveryTypeDecodesBitForBit) { expect_golden_values("types.gguf"); }

TEST(BlockFormats, Version2IsReadLikeVersion3) {
  expect_golden_values("types-v2.gguf");
  EXPECT_EQ(GgufFile::open(kFolder + "types-v2.gguf")->version(), 2u);
  EXPECT_EQ(GgufFile::open(kFolder + "types.gguf")->version(), 3u);
}

struct ScaleField {
  DType type;
  size_t offset;
  std::vector<uint16_t> bad;
};

TEST(BlockFormats, FindsTheBlockWithANonFiniteScale) {
  const std::vector<uint16_t> halves = {0x7C00, 0xFC00, 0x7E00, 0xFFFF};
  const std::vector<ScaleField> fields = {
      {DType::kF16, 0, halves},
      {DType::kQ8_0, 0, halves},
      {DType::kQ4_0, 0, halves},
      {DType::kQ4_1, 0, halves},
      {DType::kQ4_1, 2, halves},
      {DType::kQ5_0, 0, halves},
      {DType::kQ5_1, 0, halves},
      {DType::kQ5_1, 2, halves},
      {DType::kQ4_K, 0, halves},
      {DType::kQ4_K, 2, halves},
      {DType::kQ5_K, 0, halves},
      {DType::kQ5_K, 2, halves},
      {DType::kQ6_K, 208, halves},
      {DType::kQ2_K, 80, halves},
      {DType::kQ2_K, 82, halves},
      {DType::kQ3_K, 108, halves},
      {DType::kIQ4_NL, 0, halves},
      {DType::kIQ4_XS, 0, halves},
      {DType::kMXFP4, 0, {0x00FF, 0xFFFF}},  // the first byte is the exponent
      {DType::kIQ1_S, 0, halves},
      {DType::kIQ2_XXS, 0, halves},
      {DType::kIQ2_XS, 0, halves},
      {DType::kIQ2_S, 0, halves},
      {DType::kIQ3_XXS, 0, halves},
      {DType::kIQ3_S, 0, halves},
      {DType::kTQ1_0, 52, halves},
      {DType::kTQ2_0, 64, halves},
      {DType::kBF16, 0, {0x7F80, 0xFF80, 0x7FC0}},
      {DType::kF32, 2, {0x7F80, 0xFF80, 0x7FC0}},  // the high half of the element
  };
  constexpr size_t kBlocks = 37;
  for (const ScaleField& field : fields) {
    const DTypeInfo& info = dtype_info(field.type);
    // Every other byte is 0x77: finite as a scale of any type.
    std::vector<uint8_t> row(kBlocks * info.block_bytes, 0x77);
    const size_t elements = kBlocks * info.block_elements;
    EXPECT_FALSE(find_non_finite_block(field.type, row.data(), elements).has_value()) << info.name;
    for (const size_t block : {size_t{0}, size_t{7}, kBlocks - 1}) {
      for (const uint16_t bad : field.bad) {
        std::vector<uint8_t> copy = row;
        std::memcpy(copy.data() + block * info.block_bytes + field.offset, &bad, sizeof bad);
        EXPECT_EQ(find_non_finite_block(field.type, copy.data(), elements), block) << info.name;
      }
    }
  }
}

TEST(BlockFormats, TheScatteredScaleOfIq1M) {
  std::vector<uint8_t> block(dtype_info(DType::kIQ1_M).block_bytes, 0x77);
  block[53] = 0xC7;  // bits 8 .. 11 of d, then 12 .. 15: an exponent of ones
  EXPECT_EQ(find_non_finite_block(DType::kIQ1_M, block.data(), 256), 0u);
  block[53] = 0x47;
  EXPECT_FALSE(find_non_finite_block(DType::kIQ1_M, block.data(), 256).has_value());
}

TEST(BlockFormats, QuantizedBytesMayHaveAnyValue) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const DTypeInfo& info = dtype_info(type);
    std::vector<uint8_t> block(info.block_bytes, 0xFF);
    const size_t scale = type == DType::kQ6_K ? 208 : 0;
    std::fill_n(block.begin() + static_cast<std::ptrdiff_t>(scale), type == DType::kQ4_K ? 4 : 2,
                0);
    EXPECT_FALSE(find_non_finite_block(type, block.data(), info.block_elements)) << info.name;
  }
}

}  // namespace
}  // namespace kvikk
