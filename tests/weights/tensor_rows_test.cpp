// Rows of every kind of stored tensor, against values computed here from the definitions of the
// formats.

#include "weights/tensor_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "weights/block_formats.h"
#include "weights/block_quantizer.h"
#include "weights/pack.h"

namespace kvikk {
namespace {

StoredTensor tensor_of(DType type, std::vector<uint64_t> shape, const std::vector<uint8_t>& bytes) {
  StoredTensor tensor;
  tensor.name = "t";
  tensor.type = type;
  tensor.shape = std::move(shape);
  tensor.bytes = bytes;
  return tensor;
}

std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<uint8_t> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// (-1)^s 2^(e - 7) (1 + m / 8), or 2^-6 m / 8.
double e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const double magnitude = exponent == 0 ? std::pow(2.0, -6) * mantissa / 8
                                         : std::pow(2.0, exponent - 7) * (1 + mantissa / 8.0);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(TensorRows, E4m3) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, e4m3(static_cast<uint8_t>(bits))) << bits;
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
}

TEST(TensorRows, Fp8WithScalesForBlocks) {
  constexpr size_t kRows = 5, kColumns = 11;  // blocks of 2 x 4: cut at both edges
  std::vector<uint8_t> bytes = random_bytes(kRows * kColumns, 1);
  for (auto& byte : bytes) byte = (byte & 0x7f) == 0x7f ? 0 : byte;
  std::vector<float> scales(3 * 3);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.001f * static_cast<float>(i + 1);
  const std::vector<uint8_t> scale_bytes = bytes_of(scales);
  StoredTensor tensor = tensor_of(DType::kF8_E4M3, {kColumns, kRows}, bytes);
  tensor.scales = {scale_bytes, DType::kF32, 2, 4};
  EXPECT_EQ(stored_row_type(tensor), DType::kF16);
  std::vector<float> row(kColumns), half_row(kColumns);
  std::vector<uint8_t> scratch(stored_row_bytes(tensor));
  for (size_t r = 0; r < kRows; ++r) {
    read_row(tensor, r, row.data());
    dequantize_row(DType::kF16, stored_row(tensor, r, scratch.data()), half_row.data(), kColumns);
    for (size_t c = 0; c < kColumns; ++c) {
      const double exact = e4m3(bytes[r * kColumns + c]) * scales[r / 2 * 3 + c / 4];
      EXPECT_EQ(row[c], static_cast<float>(exact)) << r << " " << c;
      EXPECT_NEAR(half_row[c], exact, std::fabs(exact) / 2048 + 0x1p-25);
    }
  }
}

TEST(TensorRows, Fp4WithScalesIsMxfp4) {
  constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr size_t kGroups = 3, kRows = 4, kColumns = 32 * kGroups;
  const std::vector<uint8_t> bytes = random_bytes(kRows * kGroups * 16, 2);
  std::vector<uint8_t> scales(kRows * kGroups);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(118 + i);
  StoredTensor tensor = tensor_of(DType::kF4_E2M1, {kColumns, 2, 2}, bytes);
  tensor.scales = {scales, DType::kF8_E8M0, 1, 32};
  EXPECT_TRUE(is_readable(tensor));
  EXPECT_EQ(stored_row_type(tensor), DType::kMXFP4);
  std::vector<float> row(kColumns), block_row(kColumns);
  std::vector<uint8_t> scratch(stored_row_bytes(tensor));
  for (size_t r = 0; r < kRows; ++r) {
    read_row(tensor, r, row.data());
    dequantize_row(DType::kMXFP4, stored_row(tensor, r, scratch.data()), block_row.data(),
                   kColumns);
    for (size_t c = 0; c < kColumns; ++c) {
      const uint8_t byte = bytes[r * kGroups * 16 + c / 2];
      const int code = c % 2 == 0 ? byte & 15 : byte >> 4;
      const double exact = (code >= 8 ? -1 : 1) * kE2m1[code % 8] *
                           std::pow(2.0, scales[r * kGroups + c / 32] - 127);
      EXPECT_EQ(row[c], exact) << r << " " << c;
      EXPECT_EQ(block_row[c], exact);
    }
  }
}

TEST(TensorRows, RowsThatNeedNoWorkStayInTheFile) {
  const std::vector<uint8_t> bytes = random_bytes(4 * 34 * 2, 3);
  const StoredTensor tensor = tensor_of(DType::kQ8_0, {64, 4}, bytes);
  EXPECT_EQ(stored_row(tensor, 3, nullptr), bytes.data() + 3 * 68);
}

// The floats of a packed panel of kF32: [k][16].
std::vector<float> packed_floats(const PanelRows& rows) {
  const size_t k = panel_row_elements(*rows.tensor, rows.transposed);
  std::vector<float> panel(k * kPanelRows);
  EXPECT_TRUE(pack_rows(rows, DType::kF32, reinterpret_cast<uint8_t*>(panel.data())));
  return panel;
}

TEST(TensorRows, TransposedExperts) {
  constexpr size_t kExperts = 3, kInputs = 7, kOutputs = 10;  // stored [expert, input, output]
  std::vector<float> values(kExperts * kInputs * kOutputs);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<uint8_t> floats = bytes_of(values);
  std::vector<uint8_t> bfloats(values.size() * 2);  // below 256, exact
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(bfloats.data() + 2 * i, floats.data() + 4 * i + 2, 2);
  }
  PanelRows rows;
  rows.transposed = true;
  for (size_t lane = 0; lane < kPanelRows; ++lane) {  // every second output, across experts
    rows.rows[lane] = lane == 15 ? -1 : static_cast<int64_t>(2 * lane + 1);
  }
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const StoredTensor tensor =
        tensor_of(type, {kOutputs, kInputs, kExperts}, type == DType::kF32 ? floats : bfloats);
    rows.tensor = &tensor;
    ASSERT_EQ(panel_row_elements(tensor, true), kInputs);
    const std::vector<float> panel = packed_floats(rows);
    std::vector<uint8_t> own((kInputs + 1) / 2 * 2 * kPanelRows * (type == DType::kF32 ? 4 : 2));
    ASSERT_TRUE(pack_rows(rows, type, own.data()));
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      for (size_t i = 0; i < kInputs; ++i) {
        const size_t row = 2 * lane + 1;
        const float expected =
            lane == 15
                ? 0.0f
                : values[row / kOutputs * kInputs * kOutputs + i * kOutputs + row % kOutputs];
        if (type == DType::kF32 || expected < 256) {
          EXPECT_EQ(panel[i * kPanelRows + lane], expected) << lane << " " << i;
        }
        if (type == DType::kBF16) {  // pairs of k: [16][2]
          uint16_t bits = 0;
          std::memcpy(&bits, own.data() + i / 2 * 64 + lane * 4 + i % 2 * 2, 2);
          const auto wide = static_cast<uint32_t>(bits) << 16;
          float value = 0;
          std::memcpy(&value, &wide, 4);
          EXPECT_EQ(value, panel[i * kPanelRows + lane]);
        }
      }
    }
  }
}

TEST(TensorRows, QuantizingWhilePackingIsQuantizingThenPacking) {
  constexpr size_t kColumns = 256, kRows = 5;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(kRows * kColumns);
  for (float& value : values) value = normal(random);
  const std::vector<uint8_t> bytes = bytes_of(values);
  const StoredTensor tensor = tensor_of(DType::kF32, {kColumns, kRows}, bytes);
  PanelRows rows;
  rows.tensor = &tensor;
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    rows.rows[lane] = lane < kRows ? static_cast<int64_t>(kRows - 1 - lane) : -1;
  }
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(panel_format_of(type))];
    std::vector<uint8_t> actual(kColumns / layout.unit_elements * layout.unit_bytes);
    std::vector<uint8_t> expected(actual.size());
    ASSERT_TRUE(pack_rows(rows, type, actual.data()));
    std::vector<uint8_t> blocks(row_bytes(type, kColumns) * kRows);
    const uint8_t* pointers[kPanelRows] = {};
    for (size_t r = 0; r < kRows; ++r) {
      uint8_t* row = blocks.data() + r * row_bytes(type, kColumns);
      ASSERT_TRUE(quantize_row(type, values.data() + (kRows - 1 - r) * kColumns, row, kColumns));
      pointers[r] = row;
    }
    ASSERT_TRUE(pack_panel(type, pointers, kColumns, expected.data()));
    EXPECT_EQ(actual, expected) << dtype_info(type).name;
  }
  values[7] = std::nanf("");
  const std::vector<uint8_t> bad = bytes_of(values);
  const StoredTensor broken = tensor_of(DType::kF32, {kColumns, kRows}, bad);
  rows.tensor = &broken;
  std::vector<uint8_t> panel(kColumns * kPanelRows * 4);
  for (const DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    EXPECT_FALSE(pack_rows(rows, type, panel.data())) << dtype_info(type).name;
  }
}

}  // namespace
}  // namespace kvikk
