// Mixtures of experts against float64, and the law that a row's bits depend on that row alone: not
// on the other rows, on how they are gathered, or on threads.

#include "tensor/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace kvikk {
namespace {

constexpr size_t kRows = 70;

std::vector<CpuFeatures> levels() {
  const CpuFeatures here = detect_cpu_features();
  std::vector<CpuFeatures> levels = {CpuFeatures{}};
  if (here.avx512_vnni) levels.push_back(here);
  return levels;
}

void silu(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

// Random experts with float32 matrices, and with int8 ones of the same shape.
struct Fixture {
  Fixture(ExpertShape s, PanelFormat format, bool biased) : shape(s) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto matrix = [&](size_t outputs, size_t inputs) {
      Matrix m;
      m.format = format;
      m.outputs = outputs;
      m.inputs = inputs;
      buffers.push_back(std::move(Buffer::allocate(m.bytes()).value()));
      uint8_t* bytes = buffers.back().data();
      const float scale = 1.0f / std::sqrt(static_cast<float>(inputs));
      if (format == PanelFormat::kF32) {
        for (size_t i = 0; i < m.bytes() / 4; ++i) {
          reinterpret_cast<float*>(bytes)[i] = scale * normal(random);
        }
      } else {  // kQ8: codes, then a half scale of 2^-9 for each of 16 rows
        for (size_t i = 0; i < m.bytes(); ++i) bytes[i] = static_cast<uint8_t>(random());
        for (size_t unit = 0; unit < m.bytes(); unit += 544) {
          for (size_t r = 0; r < 16; ++r) {
            bytes[unit + 512 + 2 * r] = 0;
            bytes[unit + 512 + 2 * r + 1] = 0x18;
          }
        }
      }
      m.panels = bytes;
      return m;
    };
    const auto bias = [&](size_t n) {
      std::vector<float> v;
      for (size_t i = 0; biased && i < n; ++i) v.push_back(normal(random));
      return v;
    };
    for (size_t e = 0; e < shape.experts; ++e) {
      Expert expert;
      expert.gate = matrix(shape.width, shape.hidden);
      expert.up = matrix(shape.width, shape.hidden);
      expert.down = matrix(shape.hidden, shape.width);
      expert.gate_bias = bias(shape.width);
      expert.up_bias = bias(shape.width);
      expert.down_bias = bias(shape.hidden);
      experts.push_back(std::move(expert));
    }
    for (size_t i = 0; i < kRows * shape.hidden; ++i) x.push_back(normal(random));
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t c = 0; c < shape.chosen; ++c) {  // different ones of a row; expert 0 by half
        const size_t e = r % 2 == 0 && c == 0 ? 0 : 1 + (r * 3 + c) % (shape.experts - 1);
        choices.push_back({static_cast<uint32_t>(e), 0.1f + 0.2f * std::fabs(normal(random))});
      }
    }
  }

  // Rows [first, first + count) in one call.
  std::vector<float> run(const CpuFeatures& features, int threads, size_t first, size_t count) {
    auto compute = Compute::create(make_kernels(features), threads, 64, 1, 16);
    auto mixture = ExpertMixture::create(shape, kRows);
    EXPECT_TRUE(compute.ok() && mixture.ok());
    std::vector<float> y(count * (shape.hidden + 3), 7.0f);
    const GatedActivation activation = silu;
    ExpertMixture::Call call;
    call.experts = experts;
    call.choices = std::span(choices).subspan(first * shape.chosen, count * shape.chosen);
    call.x = x.data() + first * shape.hidden;
    call.x_stride = shape.hidden;
    call.activation = &activation;
    call.y = y.data();
    call.y_stride = shape.hidden + 3;
    mixture->run(**compute, call);
    return y;
  }

  ExpertShape shape;
  std::vector<Buffer> buffers;
  std::vector<Expert> experts;
  std::vector<float> x;  // [kRows, hidden]
  std::vector<ExpertChoice> choices;
};

double weight_at(const Matrix& m, size_t row, size_t k) {
  const auto* panel = reinterpret_cast<const float*>(m.panels + row / 16 * m.panel_bytes());
  return static_cast<double>(panel[k * 16 + row % 16]);
}

std::vector<double> product(const Matrix& m, const std::vector<float>& bias,
                            const std::vector<double>& x) {
  std::vector<double> y(m.outputs);
  for (size_t o = 0; o < m.outputs; ++o) {
    if (!bias.empty()) y[o] = static_cast<double>(bias[o]);
    for (size_t k = 0; k < m.inputs; ++k) y[o] += weight_at(m, o, k) * x[k];
  }
  return y;
}

TEST(Experts, AgreeWithFloat64) {
  for (const bool biased : {false, true}) {
    Fixture f({.experts = 6, .chosen = 3, .hidden = 40, .width = 24}, PanelFormat::kF32, biased);
    for (const CpuFeatures& features : levels()) {
      const std::vector<float> got = f.run(features, 2, 0, kRows);
      for (size_t r = 0; r < kRows; ++r) {
        std::vector<double> want(40);
        const std::vector<double> x(&f.x[r * 40], &f.x[r * 40] + 40);
        for (size_t c = 0; c < 3; ++c) {
          const ExpertChoice choice = f.choices[r * 3 + c];
          const Expert& expert = f.experts[choice.expert];
          std::vector<double> inner = product(expert.gate, expert.gate_bias, x);
          const std::vector<double> up = product(expert.up, expert.up_bias, x);
          for (size_t i = 0; i < 24; ++i) inner[i] = inner[i] / (1 + std::exp(-inner[i])) * up[i];
          const std::vector<double> out = product(expert.down, expert.down_bias, inner);
          for (size_t d = 0; d < 40; ++d) want[d] += static_cast<double>(choice.weight) * out[d];
        }
        for (size_t d = 0; d < 40; ++d) {
          ASSERT_NEAR(static_cast<double>(got[r * 43 + d]), want[d], 1e-5) << "row " << r;
        }
        for (size_t d = 40; d < 43; ++d) ASSERT_EQ(got[r * 43 + d], 7.0f);
      }
    }
  }
}

TEST(Experts, ARowsBitsDoNotDependOnTheOtherRows) {
  for (const PanelFormat format : {PanelFormat::kF32, PanelFormat::kQ8}) {
    Fixture f({.experts = 5, .chosen = 2, .hidden = 64, .width = 96}, format, true);
    for (const CpuFeatures& features : levels()) {
      const std::vector<float> all = f.run(features, 3, 0, kRows);
      for (const size_t count : {1u, 2u, 16u, 33u}) {
        for (size_t first = 0; first + count <= kRows; first += count) {
          const std::vector<float> part = f.run(features, 1, first, count);
          ASSERT_EQ(std::memcmp(part.data(), all.data() + first * 67, part.size() * 4), 0)
              << count << " rows from " << first;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
