// Repacking is lossless: what the scalar kernels compute from a panel is what the file's own blocks
// say.

#include "weights/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "weights/block_formats.h"

namespace kvikk {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                            DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Offsets of the half-precision scales inside a block.
std::vector<size_t> scale_offsets(DType type) {
  switch (type) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
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

}  // namespace
}  // namespace kvikk
