// Quantizing against the rounding and the errors of the gguf package (tools/make_gguf_goldens.py).

#include "weights/block_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "weights/block_formats.h"
#include "weights/gguf.h"
#include "weights/half_round.h"

namespace kvikk {
namespace {

std::vector<uint8_t> quantize(DType type, const std::vector<float>& values) {
  std::vector<uint8_t> blocks(row_bytes(type, values.size()));
  EXPECT_TRUE(quantize_row(type, values.data(), blocks.data(), values.size()));
  return blocks;
}

// Mean squared error of decoded blocks, relative to the mean square of the values.
double relative_error(DType type, const uint8_t* blocks, const std::vector<float>& values) {
  std::vector<float> decoded(values.size());
  dequantize_row(type, blocks, decoded.data(), decoded.size());
  double error = 0;
  double square = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(decoded[i]) - values[i];
    error += difference * difference;
    square += static_cast<double>(values[i]) * values[i];
  }
  return error / square;
}

class Goldens : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::open(KVIKK_TEST_DATA "/gguf/quantize.gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_.emplace(std::move(file.value()));
    const StoredTensor* rows = file_->find_tensor("rows");
    ASSERT_NE(rows, nullptr);
    columns_ = rows->shape[0];
    for (size_t r = 0; r < rows->shape[1]; ++r) {
      rows_.emplace_back(columns_);
      dequantize_row(DType::kF32, rows->bytes.data() + r * columns_ * 4, rows_[r].data(), columns_);
    }
  }
  const uint8_t* golden(DType type, size_t row) const {
    const StoredTensor* tensor = file_->find_tensor(std::string("rows.") + dtype_info(type).name);
    return tensor->bytes.data() + row * row_bytes(type, columns_);
  }

  std::optional<GgufFile> file_;
  size_t columns_ = 0;
  std::vector<std::vector<float>> rows_;
};

TEST_F(Goldens, Q8AndQ4AreTheReferenceByteForByte) {
  ASSERT_EQ(rows_.size(), 6u);
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    for (size_t r = 0; r < rows_.size(); ++r) {
      const std::vector<uint8_t> blocks = quantize(type, rows_[r]);
      EXPECT_EQ(std::memcmp(blocks.data(), golden(type, r), blocks.size()), 0)
          << dtype_info(type).name << " row " << r;
    }
  }
}

// Q4_K has 4.5 bits for a weight, as many as Q4_0, and half a bit less than Q4_1.
TEST_F(Goldens, Q4KIsCloserThanTheOthersOfItsSize) {
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (r == 3) continue;  // too small for the scales of any
    const double error =
        relative_error(DType::kQ4_K, quantize(DType::kQ4_K, rows_[r]).data(), rows_[r]);
    EXPECT_LT(error, relative_error(DType::kQ4_0, golden(DType::kQ4_0, r), rows_[r])) << r;
    EXPECT_LT(error, relative_error(DType::kQ4_1, golden(DType::kQ4_1, r), rows_[r])) << r;
  }
}

TEST(BlockQuantizer, ErrorsOnBellShapedWeights) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(256 * 256);
  for (float& value : values) value = normal(random);
  const auto error = [&](DType type) {
    return relative_error(type, quantize(type, values).data(), values);
  };
  EXPECT_LT(error(DType::kQ8_0), 3.0e-5);
  EXPECT_NEAR(error(DType::kQ4_0), 0.0074, 0.0002);
  EXPECT_LT(error(DType::kQ4_K), 0.0050);
  RecordProperty("q4_k", std::to_string(error(DType::kQ4_K)));
}

TEST(BlockQuantizer, Q4KSpecialBlocks) {
  const auto decode = [](const std::vector<float>& values) {
    std::vector<float> decoded(256);
    dequantize_row(DType::kQ4_K, quantize(DType::kQ4_K, values).data(), decoded.data(), 256);
    return decoded;
  };
  EXPECT_EQ(decode(std::vector<float>(256, 0.0f)), std::vector<float>(256, 0.0f));
  for (const float constant : {1.0f, -1.0f, 0.01f}) {
    for (const float value : decode(std::vector<float>(256, constant))) {
      EXPECT_NEAR(value, constant, std::fabs(constant) * 0.004f);  // d may be subnormal
    }
  }
  // What Q4_K holds exactly comes back as it was.
  std::vector<float> exact(256);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    exact[i] = 0.125f * static_cast<float>(63 - group) * static_cast<float>((i * 7 + 3) % 16) -
               0.5f * static_cast<float>(63 - 2 * group);
  }
  EXPECT_LT(relative_error(DType::kQ4_K, quantize(DType::kQ4_K, exact).data(), exact), 1e-5);
}

TEST(BlockQuantizer, NumbersThatAreNone) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    std::vector<uint8_t> blocks(row_bytes(type, 256));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f}) {
      std::vector<float> values(256, 0.5f);
      values[77] = bad;
      EXPECT_FALSE(quantize_row(type, values.data(), blocks.data(), 256)) << bad;
    }
    std::vector<float> tiny(256, 1e-40f);
    tiny[3] = -1e-45f;
    EXPECT_TRUE(quantize_row(type, tiny.data(), blocks.data(), 256));
  }
}

TEST(BlockQuantizer, TypesThatFit) {
  EXPECT_EQ(quantized_type("q8_0"), DType::kQ8_0);
  EXPECT_EQ(quantized_type("q4_0"), DType::kQ4_0);
  EXPECT_EQ(quantized_type("q4_k"), DType::kQ4_K);
  EXPECT_FALSE(quantized_type("q4_1").has_value());
  EXPECT_EQ(fitting_type(DType::kQ4_K, 512), DType::kQ4_K);
  EXPECT_EQ(fitting_type(DType::kQ4_K, 96), DType::kQ8_0);
  EXPECT_EQ(fitting_type(DType::kQ4_0, 96), DType::kQ4_0);
  EXPECT_FALSE(fitting_type(DType::kQ4_K, 100).has_value());
}

TEST(HalfRound, EveryHalfAndTheHalvesBetween) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = std::ldexp(static_cast<float>((bits & 0x3ff) | (bits >= 0x400 ? 0x400 : 0)),
                                   std::max<int>(1, static_cast<int>(bits >> 10)) - 25);
    ASSERT_EQ(float_to_half(value), bits);
    ASSERT_EQ(float_to_half(-value), bits | 0x8000);
    const float next =
        bits + 1 == 0x7c00
            ? 65536.0f
            : std::ldexp(static_cast<float>(((bits + 1) & 0x3ff) | (bits + 1 >= 0x400 ? 0x400 : 0)),
                         std::max<int>(1, static_cast<int>((bits + 1) >> 10)) - 25);
    const float middle = (value + next) / 2;  // exact; a tie goes to the even one
    ASSERT_EQ(float_to_half(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(float_to_half(1e9f), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::quiet_NaN()) & 0x7e00, 0x7e00);
  EXPECT_EQ(float_to_half(1e-45f), 0);
}

}  // namespace
}  // namespace kvikk
