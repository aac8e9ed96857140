// The two-stage head against the one-stage head: the same bits wherever it gives a logit, and
// nothing of the top is left out.

#include "models/output_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/kernel_levels.h"
#include "weights/block_formats.h"
#include "weights/block_quantizer.h"
#include "weights/pack.h"

namespace kvikk {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A head of random weights as a file would have it, packed.
struct TestHead {
  TestHead(DType stored_type, size_t vocabulary, size_t hidden, unsigned seed, float outlier = 1.0f)
      : type(stored_type) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> row(hidden);
    const size_t row_size = row_bytes(type, hidden);
    bytes.resize(vocabulary * row_size);
    for (size_t r = 0; r < vocabulary; ++r) {
      for (size_t i = 0; i < hidden; ++i) {
        row[i] = 0.02f * normal(random) * (i % 61 == 5 ? outlier : 1.0f);
      }
      EXPECT_TRUE(quantize_row(type, row.data(), bytes.data() + r * row_size, hidden));
    }
    tensor.name = "output.weight";
    tensor.type = type;
    tensor.shape = {hidden, vocabulary};
    tensor.bytes = bytes;
    matrix.format = panel_format_of(type);
    matrix.outputs = vocabulary;
    matrix.inputs = hidden;
    Result<Buffer> buffer = Buffer::allocate(matrix.bytes());
    EXPECT_TRUE(buffer.ok());
    memory = std::move(buffer.value());
    matrix.panels = memory.data();
    for (size_t p = 0; p < matrix.panel_count(); ++p) {
      const uint8_t* rows[kPanelRows] = {};
      for (size_t i = 0; i < kPanelRows && p * kPanelRows + i < vocabulary; ++i) {
        rows[i] = bytes.data() + (p * kPanelRows + i) * row_size;
      }
      EXPECT_TRUE(pack_panel(type, rows, hidden, memory.data() + p * matrix.panel_bytes()));
    }
  }

  DType type;
  std::vector<uint8_t> bytes;
  StoredTensor tensor;
  Matrix matrix;
  Buffer memory;
};

struct Logits {
  std::vector<float> values;
  size_t stride;
  const float* row(size_t r) const { return values.data() + r * stride; }
};

Logits run(OutputHead& head, const TestHead& from, Compute& compute,
           const std::vector<std::vector<float>>& x, size_t top) {
  Result<Activations> in = Activations::allocate(x.size(), from.matrix.inputs);
  EXPECT_TRUE(in.ok());
  in.value().shape(x.size(), from.matrix.inputs);
  for (size_t r = 0; r < x.size(); ++r) {
    std::copy(x[r].begin(), x[r].end(), in.value().row(r));
    in.value().quantize(compute.kernels(), r);
  }
  Logits logits;
  logits.stride = from.matrix.panel_count() * kPanelRows;
  logits.values.assign(x.size() * logits.stride, 77.0f);
  head.run(compute, in.value(), top, logits.values.data(), logits.stride);
  return logits;
}

std::vector<std::vector<float>> random_rows(size_t count, size_t n, unsigned seed,
                                            float outlier = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> rows(count, std::vector<float>(n));
  for (auto& row : rows) {
    for (size_t i = 0; i < n; ++i) row[i] = normal(random) * (i % 61 == 5 ? outlier : 1.0f);
  }
  return rows;
}

// How many logits the staged run left out; fails unless the rest is as it should be.
size_t check_against_full(const Logits& full, const Logits& staged, size_t rows, size_t vocabulary,
                          size_t top) {
  size_t left_out = 0;
  for (size_t r = 0; r < rows; ++r) {
    std::vector<float> sorted(full.row(r), full.row(r) + vocabulary);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (size_t i = 0; i < vocabulary; ++i) {
      const float got = staged.row(r)[i];
      if (got == kMinusInfinity) {
        EXPECT_LT(full.row(r)[i], sorted[top - 1]) << "row " << r << " token " << i;
        ++left_out;
      } else {
        EXPECT_EQ(std::memcmp(&got, &full.row(r)[i], sizeof got), 0) << "row " << r << " " << i;
      }
    }
  }
  return left_out;
}

class OutputHeadTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Compute> compute(const Kernels& kernels, int threads = 2) {
    auto made = Compute::create(kernels, threads, 1024, 1, 64);
    EXPECT_TRUE(made.ok());
    return std::move(made.value());
  }
  static OutputHead make(const TestHead& from, ThreadPool& pool) {
    auto head = OutputHead::create(from.matrix, &from.tensor, pool, 16);
    EXPECT_TRUE(head.ok());
    return std::move(head.value());
  }
};

TEST_F(OutputHeadTest, TheTopIsThereToTheBit) {
  for (const Kernels& kernels : kernel_levels()) {
    const auto machine = compute(kernels);
    const TestHead from(DType::kQ8_0, 5003, 96, 1);  // the last panel is not full
    for (const size_t rows : {1u, 3u, 16u}) {
      const auto x = random_rows(rows, 96, static_cast<unsigned>(rows));
      for (const size_t top : {1u, 40u}) {
        OutputHead head = make(from, machine->pool());  // one that has not met flat logits yet
        ASSERT_TRUE(head.staged());
        const Logits full = run(head, from, *machine, x, 0);
        const Logits staged = run(head, from, *machine, x, top);
        const size_t left_out = check_against_full(full, staged, rows, 5003, top);
        if (rows == 1 && top == 1) {
          EXPECT_GT(left_out, 2000u) << kernels.level << " top " << top;
        }
      }
    }
  }
}

// Channels that are large in weights and activations alike, as real models have them.
TEST_F(OutputHeadTest, OutlierChannelsWidenTheBounds) {
  const auto machine = compute(kernel_levels().back());
  const TestHead from(DType::kQ8_0, 4096, 128, 2, 20.0f);
  OutputHead head = make(from, machine->pool());
  const auto x = random_rows(16, 128, 3, 20.0f);
  check_against_full(run(head, from, *machine, x, 0), run(head, from, *machine, x, 1), 16, 4096, 1);
}

TEST_F(OutputHeadTest, EqualLogitsAreAllThere) {
  const auto machine = compute(scalar_kernels());
  TestHead from(DType::kQ8_0, 4096, 64, 4);
  OutputHead head = make(from, machine->pool());
  const std::vector<std::vector<float>> zero(1, std::vector<float>(64, 0.0f));
  const Logits full = run(head, from, *machine, zero, 0);
  EXPECT_EQ(check_against_full(full, run(head, from, *machine, zero, 1), 1, 4096, 1), 0u);
}

TEST_F(OutputHeadTest, NaNReachesEveryLogit) {
  const auto machine = compute(scalar_kernels());
  const TestHead from(DType::kQ8_0, 4096, 64, 5);
  OutputHead head = make(from, machine->pool());
  auto x = random_rows(1, 64, 6);
  x[0][7] = std::numeric_limits<float>::quiet_NaN();
  const Logits logits = run(head, from, *machine, x, 1);
  for (size_t i = 0; i < 4096; ++i) EXPECT_TRUE(std::isnan(logits.row(0)[i]));
}

TEST_F(OutputHeadTest, OneStageWhereTwoDoNotPay) {
  const auto machine = compute(scalar_kernels());
  const TestHead four_bits(DType::kQ4_0, 256, 64, 7);
  EXPECT_FALSE(make(four_bits, machine->pool()).staged());
  const TestHead eight_bits(DType::kQ8_0, 256, 64, 7);
  auto biased = OutputHead::create(eight_bits.matrix, nullptr, machine->pool(), 16);
  ASSERT_TRUE(biased.ok());
  EXPECT_FALSE(biased.value().staged());
}

}  // namespace
}  // namespace kvikk
