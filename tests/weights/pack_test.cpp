// Repacking is lossless, or loses what transcode.h says: what the scalar kernels compute from a
// panel is what the file's own blocks say.

#include "weights/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "weights/block_formats.h"
#include "weights/transcode.h"

namespace kvikk {
namespace {

// Every type of which no weight changes when it is packed.
constexpr DType kTypes[] = {DType::kF32,     DType::kF16,   DType::kBF16,  DType::kQ8_0,
                            DType::kQ4_0,    DType::kQ4_1,  DType::kQ5_0,  DType::kQ5_1,
                            DType::kQ4_K,    DType::kQ5_K,  DType::kQ6_K,  DType::kQ3_K,
                            DType::kIQ4_NL,  DType::kMXFP4, DType::kIQ1_S, DType::kIQ1_M,
                            DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kTQ2_0};

// Offsets of the half-precision scales inside a block.
std::vector<size_t> scale_offsets(DType type) {
  switch (type) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kIQ1_S:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kTQ1_0:
      return {52};
    case DType::kTQ2_0:
      return {64};
    default:
      return {};
  }
}

// A row of random bytes whose scales and floats are small powers of two, so that float32 products
// are exact.
std::vector<uint8_t> random_row(DType type, size_t k, std::mt19937& random) {
  std::vector<uint8_t> row(row_bytes(type, k));
  for (auto& byte : row) byte = static_cast<uint8_t>(random());
  const DTypeInfo& info = dtype_info(type);
  const uint16_t halves[] = {0x3c00, 0x3800, 0xbc00, 0x2c00};  // 1, 0.5, -1, 0.0625
  for (size_t block = 0; block * info.block_bytes < row.size(); ++block) {
    uint8_t* at = row.data() + block * info.block_bytes;
    for (size_t offset : scale_offsets(type)) std::memcpy(at + offset, &halves[random() % 4], 2);
    if (type == DType::kMXFP4) at[0] = static_cast<uint8_t>(104 + random() % 43);
    if (type == DType::kIQ1_M) {  // d = 0x3c00 in the top nibbles
      for (int i = 0; i < 4; ++i) at[49 + 2 * i] &= 15;
      at[53] |= 0xc0;
      at[55] |= 0x30;
    }
    if (type == DType::kF16) std::memcpy(at, &halves[random() % 4], 2);
    const uint16_t wide[] = {0x3f80, 0xbf00};  // 1, -0.5 as bfloat16
    if (type == DType::kBF16) std::memcpy(at, &wide[random() % 2], 2);
    const float whole = static_cast<float>(random() % 100) - 50.0f;
    if (type == DType::kF32) std::memcpy(at, &whole, 4);
  }
  return row;
}

class Pack : public testing::TestWithParam<DType> {};

TEST_P(Pack, EveryWeightKeepsItsValue) {
  const DType type = GetParam();
  const size_t k = dtype_info(type).block_elements == 256 ? 512 : 96;
  std::mt19937 random(static_cast<uint32_t>(type) + 1);
  constexpr size_t kRows = 13;  // three rows of padding
  std::vector<std::vector<uint8_t>> rows;
  const uint8_t* pointers[kPanelRows] = {};
  std::vector<std::vector<float>> values(kPanelRows, std::vector<float>(k, 0.0f));
  for (size_t i = 0; i < kRows; ++i) {
    rows.push_back(random_row(type, k, random));
    pointers[i] = rows[i].data();
    dequantize_row(type, pointers[i], values[i].data(), k);
  }
  const PanelFormat format = panel_format_of(type);
  const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(format)];
  std::vector<uint8_t> panel(k / layout.unit_elements * layout.unit_bytes, 0xee);
  ASSERT_TRUE(pack_panel(type, pointers, k, panel.data()));

  // One activation row with a single one in it reads a single column of the panel.
  Kernels kernels;
  scalar::fill(kernels);
  for (size_t column = 0; column < k; ++column) {
    std::vector<float> x(k, 0.0f);
    x[column] = 127.0f;
    std::vector<int8_t> codes(k);
    std::vector<float> scales(k / kGroup), weighted(k / kGroup);
    std::vector<int32_t> sums(k / kGroup * 2);
    QuantizedRows quantized{1,           k / kGroup,     codes.data(), scales.data(),
                            sums.data(), weighted.data()};
    kernels.quantize_row(x.data(), 0, quantized);
    float y[kPanelRows];
    MatmulArgs args;
    args.panels = panel.data();
    args.panel_bytes = panel.size();
    args.panel_end = 1;
    args.k = k;
    args.rows = 1;
    args.quantized = quantized;
    args.x = x.data();
    args.x_stride = k;
    args.y = y;
    args.y_stride = kPanelRows;
    kernels.matmul[static_cast<size_t>(format)](args);
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      EXPECT_FLOAT_EQ(y[lane], values[lane][column] * 127.0f)
          << dtype_info(type).name << " row " << lane << " column " << column;
    }
  }
}

TEST_P(Pack, AScaleThatIsNoNumberIsNoticed) {
  const DType type = GetParam();
  const size_t k = 256;
  std::mt19937 random(5);
  for (size_t offset : scale_offsets(type)) {
    std::vector<uint8_t> row = random_row(type, k, random);
    const uint8_t* pointers[kPanelRows] = {};
    pointers[7] = row.data();
    const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(panel_format_of(type))];
    std::vector<uint8_t> panel(k / layout.unit_elements * layout.unit_bytes);
    EXPECT_TRUE(pack_panel(type, pointers, k, panel.data()));
    const uint16_t nan = 0x7e00;
    std::memcpy(row.data() + row.size() - dtype_info(type).block_bytes + offset, &nan, 2);
    EXPECT_FALSE(pack_panel(type, pointers, k, panel.data())) << dtype_info(type).name;
    std::vector<uint8_t> wide(k * kPanelRows * sizeof(float));
    EXPECT_FALSE(pack_panel_f32(type, pointers, k, wide.data())) << dtype_info(type).name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Pack, testing::ValuesIn(kTypes),
                         [](const auto& type) { return dtype_info(type.param).name; });

// The largest change of a weight by transcoding, relative to the largest weight of its 32.
double transcoding_error(DType type, uint32_t seed) {
  constexpr size_t kElements = 256 * 64;
  std::mt19937 random(seed);
  std::vector<uint8_t> row = random_row(type, kElements, random);
  for (size_t at = 0; at < row.size(); at += dtype_info(type).block_bytes) {
    for (size_t offset : scale_offsets(type)) {  // any normal half of 2^-10 .. 2^-3
      const auto half = static_cast<uint16_t>(0x1400 + random() % 0x1c00);
      std::memcpy(row.data() + at + offset, &half, 2);
    }
  }
  const DType resident = resident_type(type);
  std::vector<uint8_t> transcoded(row_bytes(resident, kElements));
  transcode_row(type, row.data(), transcoded.data(), kElements);
  std::vector<float> expected(kElements), actual(kElements);
  dequantize_row(type, row.data(), expected.data(), kElements);
  dequantize_row(resident, transcoded.data(), actual.data(), kElements);
  double worst = 0;
  for (size_t group = 0; group < kElements; group += 32) {
    double largest = 0, difference = 0;
    for (size_t i = group; i < group + 32; ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
      difference = std::max(difference, std::fabs(static_cast<double>(expected[i]) - actual[i]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

TEST(Transcode, ErrorsAreAsSmallAsPromised) {
  for (const DType type : {DType::kQ3_K, DType::kIQ4_NL, DType::kMXFP4, DType::kIQ3_S,
                           DType::kIQ3_XXS, DType::kIQ1_S, DType::kTQ1_0, DType::kTQ2_0}) {
    EXPECT_EQ(transcoding_error(type, 1), 0.0) << dtype_info(type).name;
  }
  for (const DType type : {DType::kIQ4_XS, DType::kIQ2_XXS}) {
    EXPECT_LE(transcoding_error(type, 2), 1.0 / 2048) << dtype_info(type).name;
  }
  for (const DType type : {DType::kQ2_K, DType::kIQ2_XS, DType::kIQ2_S}) {
    EXPECT_LE(transcoding_error(type, 3), 1.01 / 254) << dtype_info(type).name;
  }
}

TEST(Transcode, Mxfp4OutsideOfHalf) {
  const auto values_of = [](uint8_t exponent) {
    std::vector<uint8_t> block(17, 0x27);  // 6 and 1 (times 2^(e - 127))
    block[0] = exponent;
    std::vector<uint8_t> transcoded(34);
    transcode_row(DType::kMXFP4, block.data(), transcoded.data(), 32);
    std::vector<float> values(32);
    dequantize_row(DType::kQ8_0, transcoded.data(), values.data(), 32);
    return std::pair(values[0], values[16]);
  };
  EXPECT_EQ(values_of(127), std::pair(6.0f, 1.0f));
  EXPECT_EQ(values_of(146), std::pair(6 * 0x1p19f, 0x1p19f));  // the largest
  EXPECT_TRUE(std::isinf(values_of(147).first));
  EXPECT_TRUE(std::isinf(values_of(255).first));
  EXPECT_EQ(values_of(104), std::pair(6 * 0x1p-23f, 0x1p-23f));  // the smallest
  EXPECT_EQ(values_of(50), std::pair(0.0f, 0.0f));
}

TEST(PackLarge, AScaleAboveHalfIsNoticed) {
  std::vector<uint8_t> row(17, 0x11);
  const uint8_t* pointers[kPanelRows] = {row.data()};
  std::vector<uint8_t> panel(kPanelLayouts[static_cast<size_t>(PanelFormat::kQ8)].unit_bytes);
  row[0] = 140;
  EXPECT_TRUE(pack_panel(DType::kMXFP4, pointers, 32, panel.data()));
  row[0] = 200;
  EXPECT_FALSE(pack_panel(DType::kMXFP4, pointers, 32, panel.data()));
}

}  // namespace
}  // namespace kvikk
