// Operations on rows: every level against the scalar one (bit for bit where integers or bytes are
// promised) and against float64.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/kernel_levels.h"

namespace kvikk {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const size_t kLengths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 576, 1536, 2049};

std::vector<float> random_floats(size_t n, unsigned seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

struct Quantized {
  Quantized(size_t rows, size_t groups)
      : codes(rows * groups * kGroup, 99),
        scales(rows * groups, -1.0f),
        sums(rows * groups * 2, 12345),
        weighted(rows * groups, -1.0f) {
    view = {rows, groups, codes.data(), scales.data(), sums.data(), weighted.data()};
  }
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  std::vector<float> weighted;
  QuantizedRows view;
};

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void expect_same_quantized(const std::vector<float>& x, size_t rows, size_t groups) {
  const Kernels scalar = scalar_kernels();
  Quantized want(rows, groups);
  const size_t n = groups * kGroup;
  for (size_t r = 0; r < rows; ++r) scalar.quantize_row(x.data() + r * n, r, want.view);
  for (const Kernels& level : kernel_levels()) {
    Quantized got(rows, groups);
    for (size_t r = rows; r-- > 0;) level.quantize_row(x.data() + r * n, r, got.view);
    EXPECT_TRUE(same_bytes(got.codes, want.codes)) << level.level << " rows " << rows;
    EXPECT_TRUE(same_bytes(got.sums, want.sums)) << level.level << " rows " << rows;
    for (size_t i = 0; i < rows * groups; ++i) {
      if (std::isnan(want.weighted[i])) {
        EXPECT_TRUE(std::isnan(got.scales[i])) << level.level;
        EXPECT_TRUE(std::isnan(got.weighted[i])) << level.level;
      } else {
        EXPECT_EQ(got.scales[i], want.scales[i]) << level.level;
        EXPECT_EQ(got.weighted[i], want.weighted[i]) << level.level;
      }
    }
  }
}

TEST(Rows, QuantizeRowGivesTheSameCodesAtEveryLevel) {
  for (const size_t rows : {1u, 3u, 16u, 17u, 40u}) {
    for (const size_t groups : {1u, 2u, 48u}) {
      expect_same_quantized(random_floats(rows * groups * kGroup, 7), rows, groups);
    }
  }
}

TEST(Rows, QuantizeRowRoundsTiesToEvenAtEveryLevel) {
  std::vector<float> x(kGroup);
  for (size_t i = 0; i < kGroup; ++i) x[i] = static_cast<float>(i) + 0.5f;
  x[31] = 127.0f;  // the scale is exactly 1
  expect_same_quantized(x, 1, 1);
  Quantized out(1, 1);
  scalar_kernels().quantize_row(x.data(), 0, out.view);
  EXPECT_EQ(out.codes[0], 0);
  EXPECT_EQ(out.codes[1], 2);
  EXPECT_EQ(out.codes[2], 2);
  EXPECT_EQ(out.codes[31], 127);
  EXPECT_EQ(out.scales[0], 1.0f);
}

TEST(Rows, QuantizeRowHandlesZerosDenormalsInfinitiesAndNaN) {
  for (const float special : {0.0f, -0.0f, 1e-45f, -1e-39f, 3e-37f, 1e-30f, 1e38f, -3.4e38f,
                              kInfinity, -kInfinity, kNaN, -kNaN}) {
    for (const size_t at : {0u, 15u, 16u, 31u}) {
      std::vector<float> zeros(2 * kGroup, 0.0f);
      zeros[at] = special;
      expect_same_quantized(zeros, 1, 2);
      std::vector<float> x = random_floats(2 * kGroup, 3);
      x[kGroup + at] = special;
      expect_same_quantized(x, 1, 2);
    }
  }
  std::vector<float> x = random_floats(kGroup, 3);
  x[9] = kNaN;
  for (const Kernels& level : kernel_levels()) {
    Quantized out(1, 1);
    level.quantize_row(x.data(), 0, out.view);
    EXPECT_TRUE(std::isnan(out.scales[0])) << level.level;
    EXPECT_EQ(out.codes[3], 0);
    EXPECT_TRUE(std::isnan(out.weighted[0])) << level.level;
  }
}

TEST(Rows, RmsNormIsWithinARoundingOfFloat64AndWorksInPlace) {
  for (const Kernels& level : kernel_levels()) {
    for (const size_t n : kLengths) {
      const std::vector<float> x = random_floats(n, 1, 3.0f);
      const std::vector<float> weight = random_floats(n, 2);
      double squares = 0.0;
      for (const float v : x) squares += static_cast<double>(v) * v;
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
      std::vector<float> out(n + 1, 77.0f);
      level.rms_norm(x.data(), weight.data(), n, 1e-6f, out.data());
      for (size_t i = 0; i < n; ++i) {
        const double want = x[i] * inverse * weight[i];
        EXPECT_NEAR(out[i], want, 3e-7 * std::fabs(want)) << level.level << " n " << n;
      }
      EXPECT_EQ(out[n], 77.0f) << level.level << " wrote past the end";
      std::vector<float> in_place = x;
      level.rms_norm(in_place.data(), weight.data(), n, 1e-6f, in_place.data());
      EXPECT_EQ(0, std::memcmp(in_place.data(), out.data(), n * sizeof(float))) << level.level;
    }
  }
}

TEST(Rows, RmsNormOfHugeValuesDoesNotOverflow) {
  const std::vector<float> x(64, 1e30f);
  const std::vector<float> weight(64, 2.0f);
  for (const Kernels& level : kernel_levels()) {
    std::vector<float> out(64);
    level.rms_norm(x.data(), weight.data(), 64, 1e-6f, out.data());
    EXPECT_NEAR(out[63], 2.0f, 1e-6f) << level.level;
  }
}

TEST(Rows, AddIsTheSameAtEveryLevel) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = random_floats(n, 1);
    const std::vector<float> y = random_floats(n, 2);
    for (const Kernels& level : kernel_levels()) {
      std::vector<float> out = x;
      out.push_back(77.0f);
      level.add(out.data(), y.data(), n);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], x[i] + y[i]) << level.level;
      EXPECT_EQ(out[n], 77.0f) << level.level;
    }
  }
}

// Gates from -100 to 100, dense near zero.
std::vector<float> gates() {
  std::vector<float> x = random_floats(3000, 4, 2.0f);
  for (float v = -100.0f; v <= 100.0f; v += 0.25f) x.push_back(v);
  for (float v = 1e-6f; v > 1e-38f; v *= 0.1f) x.insert(x.end(), {v, -v});
  return x;
}

using Activation = void (*)(const float* gate, const float* up, size_t n, float* out);

// `tolerance` is relative, with a floor where e^-gate nears the end of float32.
void expect_activation(Activation function, double (*reference)(double), const char* level,
                       double tolerance) {
  const std::vector<float> gate = gates();
  const std::vector<float> up = random_floats(gate.size(), 5);
  std::vector<float> out(gate.size() + 1, 77.0f);
  function(gate.data(), up.data(), gate.size(), out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double want = reference(gate[i]) * up[i];
    EXPECT_NEAR(out[i], want, tolerance * std::fabs(want) + 1e-35) << level << " of " << gate[i];
  }
  EXPECT_EQ(out[gate.size()], 77.0f) << level << " wrote past the end";
  std::vector<float> in_place = gate;
  function(in_place.data(), up.data(), gate.size(), in_place.data());
  EXPECT_EQ(0, std::memcmp(in_place.data(), out.data(), gate.size() * 4)) << level << " in place";
  for (size_t n = 1; n < 40; ++n) {  // a value does not depend on its place or on the length
    std::vector<float> part(n);
    function(gate.data() + n, up.data() + n, n, part.data());
    EXPECT_EQ(0, std::memcmp(part.data(), out.data() + n, n * 4)) << level << " n " << n;
  }
  const std::vector<float> special = {kNaN, 1.0f, 1e30f, -1e30f};
  const std::vector<float> ones(4, 1.0f);
  std::vector<float> special_out(4);
  function(special.data(), ones.data(), 4, special_out.data());
  EXPECT_TRUE(std::isnan(special_out[0])) << level;
  EXPECT_TRUE(std::isfinite(special_out[1])) << level;
  EXPECT_EQ(special_out[2], 1e30f) << level;
  EXPECT_EQ(special_out[3], 0.0f) << level;
}

TEST(Rows, SiluIsWithin1e6OfFloat64) {
  for (const Kernels& level : kernel_levels()) {
    expect_activation(
        level.silu_multiply, [](double g) { return g / (1.0 + std::exp(-g)); }, level.level, 1e-6);
  }
}

TEST(Rows, GeluIsWithin1e6OfFloat64) {
  // The argument of the exponential is rounded to float32 before, which for a result of 1e-30 is
  // worth 70 half units: 4e-6; 1e-6 holds down to results of about 1e-6.
  for (const Kernels& level : kernel_levels()) {
    expect_activation(
        level.gelu_multiply,
        [](double g) {
          const double z = 0.7978845608028654 * (g + 0.044715 * g * g * g);
          return g / (1.0 + std::exp(-2.0 * z));
        },
        level.level, 2e-5);
    const std::vector<float> gate = random_floats(4000, 8, 1.0f);
    const std::vector<float> up(gate.size(), 1.0f);
    std::vector<float> out(gate.size());
    level.gelu_multiply(gate.data(), up.data(), gate.size(), out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double z = 0.7978845608028654 * (g + 0.044715 * g * g * g);
      const double want = 0.5 * g * (1.0 + std::tanh(z));
      const double tolerance = g > -3.0 ? 1.5e-6 * std::fabs(want) : 1e-7;
      EXPECT_NEAR(out[i], want, tolerance) << level.level << " of " << g;
    }
  }
}

TEST(Rows, RopeIsTheSameAtEveryLevel) {
  const Kernels scalar = scalar_kernels();
  for (const size_t rotary : {2u, 4u, 16u, 30u, 32u, 40u, 64u, 80u, 96u, 112u, 128u, 256u}) {
    const std::vector<float> head = random_floats(rotary + 8, 1, 50.0f);
    const std::vector<float> cosines = random_floats(rotary / 2, 2);
    const std::vector<float> sines = random_floats(rotary / 2, 3);
    for (size_t style = 0; style < 2; ++style) {
      std::vector<float> want = head;
      scalar.rope[style](want.data(), cosines.data(), sines.data(), rotary);
      for (const Kernels& level : kernel_levels()) {
        std::vector<float> got = head;
        level.rope[style](got.data(), cosines.data(), sines.data(), rotary);
        EXPECT_TRUE(same_bytes(got, want)) << level.level << " rotary " << rotary;
      }
    }
  }
}

TEST(Rows, RopeRotatesByTheAngle) {
  const std::vector<float> cosines = {std::cos(0.3f), std::cos(1.1f)};
  const std::vector<float> sines = {std::sin(0.3f), std::sin(1.1f)};
  for (const Kernels& level : kernel_levels()) {
    std::vector<float> halves = {1.0f, 0.0f, 0.0f, 2.0f};
    level.rope[0](halves.data(), cosines.data(), sines.data(), 4);
    EXPECT_NEAR(halves[0], std::cos(0.3), 1e-6);
    EXPECT_NEAR(halves[2], std::sin(0.3), 1e-6);
    EXPECT_NEAR(halves[1], -2 * std::sin(1.1), 1e-6);
    EXPECT_NEAR(halves[3], 2 * std::cos(1.1), 1e-6);
    std::vector<float> pairs = {1.0f, 0.0f, 0.0f, 2.0f};
    level.rope[1](pairs.data(), cosines.data(), sines.data(), 4);
    EXPECT_NEAR(pairs[0], std::cos(0.3), 1e-6);
    EXPECT_NEAR(pairs[1], std::sin(0.3), 1e-6);
    EXPECT_NEAR(pairs[2], -2 * std::sin(1.1), 1e-6);
    EXPECT_NEAR(pairs[3], 2 * std::cos(1.1), 1e-6);
  }
}

TEST(Rows, StoreKvWritesTheSameBytesAtEveryLevelAndNoOthers) {
  const Kernels scalar = scalar_kernels();
  for (const size_t head_dim : {16u, 32u, 64u, 80u, 96u, 112u, 128u, 256u}) {
    std::vector<float> key = random_floats(head_dim, 1, 100.0f);
    std::vector<float> value = random_floats(head_dim, 2);
    const float specials[] = {kNaN,    -kNaN, kInfinity, -kInfinity,  1e-45f,     -3e-39f,
                              3.4e38f, -0.0f, 0.0f,      1.00390625f, 1.01171875f};
    for (size_t i = 0; i < std::size(specials); ++i) {
      key[i] = specials[i];
      value[head_dim - 1 - i] = specials[i];
    }
    for (size_t format = 0; format < 2; ++format) {
      const size_t bytes = kv_part_bytes(static_cast<KvFormat>(format), head_dim);
      for (size_t slot = 0; slot < kPageTokens; ++slot) {
        std::vector<uint8_t> want_keys(bytes, 0xa5);
        std::vector<uint8_t> want_values(bytes, 0xa5);
        scalar.store_key[format](want_keys.data(), slot, key.data(), head_dim);
        scalar.store_value[format](want_values.data(), slot, value.data(), head_dim);
        for (const Kernels& level : kernel_levels()) {
          std::vector<uint8_t> got(bytes, 0xa5);
          level.store_key[format](got.data(), slot, key.data(), head_dim);
          ASSERT_TRUE(same_bytes(got, want_keys)) << level.level << " slot " << slot;
          got.assign(bytes, 0xa5);
          level.store_value[format](got.data(), slot, value.data(), head_dim);
          ASSERT_TRUE(same_bytes(got, want_values)) << level.level << " slot " << slot;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
