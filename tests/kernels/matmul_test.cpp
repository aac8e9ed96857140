// Every matmul entry of every level that this machine has, against the promise of kernels.h bit by
// bit, against double precision, and against itself: a row alone or among others, any range of
// panels.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "kernels/kernel_levels.h"
#include "kernels/matmul_reference.h"

namespace kvikk {
namespace {

using matmul_test::Activations;
using matmul_test::AlignedBytes;
using matmul_test::Exact;
using matmul_test::FormatName;
using matmul_test::kFormats;
using matmul_test::kLanes;
using matmul_test::layout_of;
using matmul_test::Panels;
using matmul_test::Scales;

struct Level {
  std::string name;
  Kernels kernels;
  bool fused;
};

std::vector<Level> machine_levels() {
  std::vector<Level> levels;
  for (const Kernels& kernels : kernel_levels()) {
    const std::string name = kernels.level;
    levels.push_back({name, kernels, name != "scalar"});
  }
  return levels;
}

struct Output {
  size_t rows, stride;
  std::vector<float> y;  // [rows, stride]

  const float* at(size_t row, size_t panel) const { return &y[row * stride + panel * kLanes]; }
};

constexpr float kUntouched = -12345.0f;

// y of panels [begin, end) for the first `rows` rows, in an output that is `count` panels wide.
Output multiply_rows(const Level& level, Panels& panels, size_t count, Activations& x, size_t rows,
                     size_t begin, size_t end) {
  Output out{x.rows(), count * kLanes + 3, {}};
  out.y.assign(out.rows * out.stride, kUntouched);
  AlignedBytes scratch(matmul_scratch_bytes(panels.k()));
  MatmulArgs args;
  args.panels = panels.data();
  args.panel_bytes = panels.panel_bytes();
  args.panel_begin = begin;
  args.panel_end = end;
  x.put_into(args);
  args.rows = rows;
  args.y = out.y.data();
  args.y_stride = out.stride;
  args.scratch = scratch.data();
  level.kernels.matmul[static_cast<size_t>(panels.format())](args);
  return out;
}

Output multiply(const Level& level, Panels& panels, size_t count, Activations& x, size_t begin,
                size_t end) {
  return multiply_rows(level, panels, count, x, x.rows(), begin, end);
}

uint32_t bits_of(float f) {
  uint32_t bits = 0;
  std::memcpy(&bits, &f, 4);
  return bits;
}

bool supports(PanelFormat format, size_t k) {
  const PanelLayout& layout = layout_of(format);
  if (layout.quantized) return k % layout.unit_elements == 0;
  return format != PanelFormat::kBF16 || k % 2 == 0;
}

class Matmul : public testing::TestWithParam<FormatName> {
 protected:
  PanelFormat format() const { return GetParam().format; }
};

INSTANTIATE_TEST_SUITE_P(Formats, Matmul, testing::ValuesIn(kFormats),
                         [](const auto& format) { return format.param.name; });

// The heart: each output has the very bits of the promised sequence.
TEST_P(Matmul, EachOutputIsThePromisedSequence) {
  const std::vector<Level> levels = machine_levels();
  for (const size_t k : {1, 31, 32, 34, 64, 77, 96, 256, 512, 576, 1536}) {
    if (!supports(format(), k)) continue;
    for (const size_t rows : {1, 2, 3, 5, 8, 13, 17, 40}) {
      constexpr size_t kCount = 7;
      Panels panels(format(), kCount, k, Scales::kAnySign, static_cast<uint32_t>(k));
      Activations x(rows, k);
      x.fill(Scales::kAnySign, static_cast<uint32_t>(rows));
      for (const Level& level : levels) {
        const Output out = multiply(level, panels, kCount, x, 0, kCount);
        // All panels of the first and last row, one panel of the others: std::fma is slow.
        for (size_t row = 0; row < rows; ++row) {
          const bool whole = k <= 256 && (row == 0 || row + 1 == rows);
          for (size_t p = whole ? 0 : row % kCount; p < kCount; p += whole ? 1 : kCount) {
            for (size_t lane = 0; lane < kLanes; ++lane) {
              const float want = promised(panels, p, lane, x, row, level.fused);
              ASSERT_EQ(bits_of(want), bits_of(out.at(row, p)[lane]))
                  << level.name << " k " << k << " rows " << rows << " row " << row << " panel "
                  << p << " lane " << lane << ": " << want << " and " << out.at(row, p)[lane];
            }
          }
        }
      }
    }
  }
}

TEST_P(Matmul, IsCloseToDoublePrecision) {
  for (const size_t k : {512, 8960}) {
    constexpr size_t kCount = 3;
    constexpr size_t kRows = 18;
    Panels panels(format(), kCount, k, Scales::kAnySign, 7);
    Activations x(kRows, k);
    x.fill(Scales::kAnySign, 8);
    for (const Level& level : machine_levels()) {
      const Output out = multiply(level, panels, kCount, x, 0, kCount);
      for (const size_t row : {size_t{0}, size_t{9}, kRows - 1}) {
        for (size_t i = 0; i < kCount * kLanes; i += 5) {
          const Exact want = exact(panels, i / kLanes, i % kLanes, x, row);
          const double error = std::fabs(out.at(row, 0)[i] - want.value);
          ASSERT_LE(error, 2e-6 * want.magnitude) << level.name << " k " << k << " row " << row;
        }
      }
    }
  }
}

// Scales of 1 and extreme codes: nothing is rounded, so the integers must be exact.
TEST_P(Matmul, IntegersAreExact) {
  constexpr size_t kCount = 5;
  for (const size_t k : {32, 256, 512}) {
    if (!supports(format(), k)) continue;
    for (const size_t rows : {1, 4, 33}) {
      Panels panels(format(), kCount, k, Scales::kOne, 3);
      Activations x(rows, k);
      x.fill(Scales::kOne, 4);
      for (const Level& level : machine_levels()) {
        const Output out = multiply(level, panels, kCount, x, 0, kCount);
        for (size_t row = 0; row < rows; ++row) {
          for (size_t i = 0; i < kCount * kLanes; ++i) {
            const double want = exact(panels, i / kLanes, i % kLanes, x, row).value;
            ASSERT_EQ(want, static_cast<double>(out.at(row, 0)[i]))
                << level.name << " k " << k << " row " << row << " output " << i;
          }
        }
      }
    }
  }
}

TEST_P(Matmul, RowIsTheSameAloneAndAmongOthers) {
  constexpr size_t kCount = 6;
  constexpr size_t kRowsMost = 40;
  const size_t k = 512;
  Panels panels(format(), kCount, k, Scales::kAnySign, 21);
  for (const Level& level : machine_levels()) {
    if (level.name == "scalar") continue;
    for (size_t rows = 1; rows <= kRowsMost; ++rows) {
      Activations x(rows, k);
      x.fill(Scales::kAnySign, static_cast<uint32_t>(rows));
      const Output together = multiply(level, panels, kCount, x, 0, kCount);
      for (size_t row = 0; row < rows; ++row) {
        Activations one = x.row_alone(row);
        const Output alone = multiply(level, panels, kCount, one, 0, kCount);
        ASSERT_EQ(0, std::memcmp(alone.at(0, 0), together.at(row, 0), kCount * kLanes * 4))
            << level.name << " rows " << rows << " row " << row;
      }
    }
  }
}

// The activations may hold more rows than a call asks for; their layout follows their own number.
TEST_P(Matmul, FirstRowsOfMore) {
  constexpr size_t kCount = 5;
  constexpr size_t kRows = 41;
  const size_t k = 256;
  Panels panels(format(), kCount, k, Scales::kAnySign, 31);
  Activations x(kRows, k);
  x.fill(Scales::kAnySign, 32);
  for (const Level& level : machine_levels()) {
    const Output all = multiply(level, panels, kCount, x, 0, kCount);
    for (const size_t rows : {1, 5, 16, 18, 33, 40}) {
      const Output part = multiply_rows(level, panels, kCount, x, rows, 0, kCount);
      for (size_t row = 0; row < kRows; ++row) {
        for (size_t i = 0; i < kCount * kLanes; ++i) {
          const float want = row < rows ? all.at(row, 0)[i] : kUntouched;
          ASSERT_EQ(bits_of(want), bits_of(part.at(row, 0)[i]))
              << level.name << " rows " << rows << " row " << row;
        }
      }
    }
  }
}

TEST_P(Matmul, AnyRangeOfPanelsWritesThatRangeAlone) {
  constexpr size_t kCount = 11;
  const size_t k = 256;
  Panels panels(format(), kCount, k, Scales::kAnySign, 5);
  for (const Level& level : machine_levels()) {
    for (const size_t rows : {1, 6, 20}) {
      Activations x(rows, k);
      x.fill(Scales::kAnySign, 6);
      const Output all = multiply(level, panels, kCount, x, 0, kCount);
      for (size_t begin = 0; begin <= kCount; ++begin) {
        for (size_t end = begin; end <= kCount; ++end) {
          const Output part = multiply(level, panels, kCount, x, begin, end);
          for (size_t row = 0; row < rows; ++row) {
            for (size_t i = 0; i < part.stride; ++i) {
              const bool inside = i >= begin * kLanes && i < end * kLanes;
              const float want = inside ? all.at(row, 0)[i] : kUntouched;
              ASSERT_EQ(bits_of(want), bits_of(part.at(row, 0)[i]))
                  << level.name << " panels " << begin << " to " << end << " row " << row;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
