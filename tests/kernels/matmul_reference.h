#pragma once
// What the matmul tests compare with: random panels, activations in the kernels' layout, weights
// decoded from the description in panels.h, and the sequence of operations that kernels.h promises,
// performed one output at a time. Shares no code with the kernels.

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace kvikk::matmul_test {

constexpr size_t kLanes = kPanelRows;

struct FormatName {
  PanelFormat format;
  const char* name;
};
inline constexpr FormatName kFormats[] = {
    {PanelFormat::kF32, "F32"}, {PanelFormat::kF16, "F16"}, {PanelFormat::kBF16, "BF16"},
    {PanelFormat::kQ8, "Q8"},   {PanelFormat::kQ4, "Q4"},   {PanelFormat::kQ4M, "Q4M"},
    {PanelFormat::kQ5, "Q5"},   {PanelFormat::kQ5M, "Q5M"}, {PanelFormat::kQ4K, "Q4K"},
    {PanelFormat::kQ5K, "Q5K"}, {PanelFormat::kQ6K, "Q6K"},
};

inline const PanelLayout& layout_of(PanelFormat format) {
  return kPanelLayouts[static_cast<size_t>(format)];
}

// How the scales of random panels are drawn.
enum class Scales {
  kAnySign,  // around 0.01, either sign, some denormal halves and zeros
  kOne,      // 1, and minima 0: every result is an integer
};

// 64-byte aligned bytes with a guard behind, for panels and scratch.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t bytes) : storage_(bytes + 64) {}
  uint8_t* data() {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<uint8_t> storage_;
};

// Panels [count] of a format with every code bit random. Two panels hold the extreme codes.
class Panels {
 public:
  Panels(PanelFormat format, size_t count, size_t k, Scales scales, uint32_t seed);

  uint8_t* data() { return bytes_.data(); }
  size_t panel_bytes() const;
  size_t k() const { return k_; }
  PanelFormat format() const { return format_; }

 private:
  uint16_t random_half();
  void draw_scales(uint8_t* unit, Scales scales);

  PanelFormat format_;
  size_t k_;
  std::mt19937 random_;
  AlignedBytes bytes_;
};

// Rows of activations in both forms, whatever the format reads.
class Activations {
 public:
  Activations(size_t rows, size_t k);

  // Random rows. kOne: codes are any of -127 .. 127, scales 1.
  void fill(Scales scales, uint32_t seed);

  // The row alone, as another one-row object.
  Activations row_alone(size_t row) const;

  void put_into(MatmulArgs& args);

  int8_t& code(size_t row, size_t k) { return codes_[at(row, k / kGroup) * kGroup + k % kGroup]; }
  int8_t code(size_t row, size_t k) const {
    return codes_[at(row, k / kGroup) * kGroup + k % kGroup];
  }
  float scale(size_t row, size_t g) const { return scales_[at(row, g)]; }
  float weighted_sum(size_t row, size_t g) const { return weighted_[at(row, g)]; }
  float x(size_t row, size_t k) const { return x_[row * k_ + k]; }
  size_t rows() const { return rows_; }

 private:
  size_t at(size_t row, size_t g) const;
  void finish();

  size_t rows_, k_, groups_;
  std::vector<float> x_;  // [rows, k]
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int32_t> sums_;
  std::vector<float> weighted_;
};

// What output `lane` of `panel` must be for a row: the promised sequence, with or without fused
// multiply-adds.
float promised(Panels& panels, size_t panel, size_t lane, const Activations& x, size_t row,
               bool fused);

// The product in double precision, and the sum of its terms' magnitudes to judge an error by.
struct Exact {
  double value = 0;
  double magnitude = 0;
};

Exact exact(Panels& panels, size_t panel, size_t lane, const Activations& x, size_t row);

}  // namespace kvikk::matmul_test
