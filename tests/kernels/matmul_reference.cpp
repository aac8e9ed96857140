// Random panels and activations, weights decoded from the description in panels.h, and the promised
// sequence of operations.

#include "kernels/matmul_reference.h"

#include <cmath>
#include <cstring>

namespace kvikk::matmul_test {

namespace {

double half_value(const uint8_t* p, size_t i) {
  const unsigned bits = p[2 * i] | static_cast<unsigned>(p[2 * i + 1]) << 8;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return bits & 0x8000 ? -magnitude : magnitude;
}

void put_half(uint8_t* p, size_t i, uint16_t bits) { std::memcpy(p + 2 * i, &bits, 2); }

}  // namespace

Panels::Panels(PanelFormat format, size_t count, size_t k, Scales scales, uint32_t seed)
    : format_(format), k_(k), random_(seed), bytes_(count * panel_bytes()) {
  const PanelLayout& layout = layout_of(format);
  for (size_t p = 0; p < count; ++p) {
    uint8_t* panel = data() + p * panel_bytes();
    const int fill = p == 1 ? 0xff : p == 2 ? 0 : -1;
    for (size_t i = 0; i < panel_bytes(); ++i) {
      panel[i] = static_cast<uint8_t>(fill >= 0 ? static_cast<uint32_t>(fill) : random_());
    }
    for (size_t u = 0; u * layout.unit_elements < k; ++u) {
      draw_scales(panel + u * layout.unit_bytes, scales);
    }
  }
}

size_t Panels::panel_bytes() const {
  const PanelLayout& layout = layout_of(format_);
  return (k_ + layout.unit_elements - 1) / layout.unit_elements * layout.unit_bytes;
}

uint16_t Panels::random_half() {
  const uint32_t r = random_();
  if (r % 31 == 0) return static_cast<uint16_t>(r >> 16 & 0x83ff);  // denormal or zero
  return static_cast<uint16_t>((r >> 16 & 0x83ff) | (8 + (r >> 8) % 4) << 10);
}

void Panels::draw_scales(uint8_t* unit, Scales scales) {
  constexpr uint16_t kHalfOne = 0x3c00;
  const bool one = scales == Scales::kOne;
  const auto halves = [&](size_t at, uint16_t one_value, size_t count = kLanes) {
    for (size_t i = 0; i < count; ++i) put_half(unit + at, i, one ? one_value : random_half());
  };
  const auto ones = [&](size_t at, size_t count) {
    if (one) std::memset(unit + at, 1, count);
  };
  switch (format_) {
    case PanelFormat::kF32:
      for (size_t i = 0; i < kLanes; ++i) {
        const float w = one ? static_cast<float>(static_cast<int>(random_() % 255) - 127)
                            : std::normal_distribution<float>(0, 0.1f)(random_);
        std::memcpy(unit + 4 * i, &w, 4);
      }
      break;
    case PanelFormat::kF16:
      for (size_t i = 0; i < kLanes; ++i) put_half(unit, i, one ? kHalfOne : random_half());
      break;
    case PanelFormat::kBF16:
      for (size_t i = 0; i < 2 * kLanes; ++i) {
        const auto bits = static_cast<uint16_t>((random_() & 0x80ff) | 0x3c00);
        put_half(unit, i, one ? uint16_t{0x3f80} : bits);
      }
      break;
    case PanelFormat::kQ8:
      halves(512, kHalfOne);
      break;
    case PanelFormat::kQ4:
      halves(256, kHalfOne);
      break;
    case PanelFormat::kQ4M:
      halves(256, kHalfOne), halves(288, 0);
      break;
    case PanelFormat::kQ5:
      halves(320, kHalfOne);
      break;
    case PanelFormat::kQ5M:
      halves(320, kHalfOne), halves(352, 0);
      break;
    case PanelFormat::kQ4K:
    case PanelFormat::kQ5K:
      halves(0, kHalfOne), halves(32, 0), ones(kQ4KScales, 128);
      break;
    case PanelFormat::kQ6K:
      halves(0, kHalfOne), ones(kQ6KScales, 256);
      break;
    case PanelFormat::kCount:
      break;
  }
}

Activations::Activations(size_t rows, size_t k)
    : rows_(rows), k_(k), groups_(k / kGroup), x_(rows * k), codes_(rows * k) {
  scales_.resize(rows * groups_);
  sums_.resize(2 * rows * groups_);
  weighted_.resize(rows * groups_);
}

void Activations::fill(Scales scales, uint32_t seed) {
  std::mt19937 random(seed);
  for (float& x : x_) {
    x = scales == Scales::kOne ? static_cast<float>(static_cast<int>(random() % 9) - 4)
                               : std::normal_distribution<float>(0, 1)(random);
  }
  for (size_t row = 0; row < rows_; ++row) {
    for (size_t g = 0; g < groups_; ++g) {
      scales_[at(row, g)] =
          scales == Scales::kOne ? 1.0f : std::uniform_real_distribution<float>(0, 0.02f)(random);
      for (size_t i = 0; i < kGroup; ++i) {
        const int any = static_cast<int>(random() % 255) - 127;
        const int extreme = random() % 2 == 0 ? 127 : -127;
        code(row, g * kGroup + i) = static_cast<int8_t>(row % 5 == 1   ? extreme
                                                        : row % 5 == 2 ? 127
                                                                       : any);
      }
    }
  }
  finish();
}

Activations Activations::row_alone(size_t row) const {
  Activations alone(1, k_);
  for (size_t k = 0; k < k_; ++k) alone.x_[k] = x_[row * k_ + k];
  for (size_t k = 0; k < groups_ * kGroup; ++k) alone.code(0, k) = code(row, k);
  for (size_t g = 0; g < groups_; ++g) alone.scales_[g] = scales_[at(row, g)];
  alone.finish();
  return alone;
}

size_t Activations::at(size_t row, size_t g) const {
  const size_t block = row / kRowBlock * kRowBlock;
  const size_t block_rows = rows_ - block < kRowBlock ? rows_ - block : kRowBlock;
  return block * groups_ + g * block_rows + row % kRowBlock;
}

void Activations::put_into(MatmulArgs& args) {
  args.rows = rows_;
  args.k = k_;
  args.x = x_.data();
  args.x_stride = k_;
  args.quantized = {rows_, groups_, codes_.data(), scales_.data(), sums_.data(), weighted_.data()};
}

void Activations::finish() {
  for (size_t row = 0; row < rows_; ++row) {
    for (size_t g = 0; g < groups_; ++g) {
      int32_t sums[2] = {0, 0};
      for (size_t i = 0; i < kGroup; ++i) sums[i / 16] += code(row, g * kGroup + i);
      std::memcpy(&sums_[2 * at(row, g)], sums, sizeof sums);
      weighted_[at(row, g)] = scale(row, g) * static_cast<float>(sums[0] + sums[1]);
    }
  }
}

namespace {

// A weight as its parts: value = scale * (code - zero) + minimum.
struct Weight {
  int code = 0;
  int zero = 0;
  float scale = 0;
  float minimum = 0;
  double value() const { return static_cast<double>(scale) * (code - zero) + minimum; }
};

int nibble(const uint8_t* lines, size_t k, size_t lane) {
  const int byte = lines[k / 8 * 64 + lane * 4 + k % 4];
  return k / 4 % 2 == 0 ? byte & 15 : byte >> 4;
}

int fifth_bit(const uint8_t* bits, size_t k, size_t lane) {
  const size_t i = lane * 4 + k % 4;
  return bits[k / 4 * 8 + i / 8] >> i % 8 & 1;
}

int high_pair(const uint8_t* lines, size_t k, size_t lane) {
  return lines[k / 16 * 64 + lane * 4 + k % 4] >> 2 * (k / 4 % 4) & 3;
}

Weight quantized_weight(Panels& panels, size_t panel, size_t k, size_t lane) {
  const PanelLayout& layout = layout_of(panels.format());
  const uint8_t* unit =
      panels.data() + panel * panels.panel_bytes() + k / layout.unit_elements * layout.unit_bytes;
  const size_t in = k % kGroup;
  const size_t group = k % layout.unit_elements / kGroup;
  const auto half = [&](size_t at) { return static_cast<float>(half_value(unit + at, lane)); };
  switch (panels.format()) {
    case PanelFormat::kQ8:
      return {unit[in / 4 * 64 + lane * 4 + in % 4], 128, half(512), 0};
    case PanelFormat::kQ4:
      return {nibble(unit, in, lane), 8, half(256), 0};
    case PanelFormat::kQ4M:
      return {nibble(unit, in, lane), 0, half(256), half(288)};
    case PanelFormat::kQ5:
      return {nibble(unit, in, lane) + 16 * fifth_bit(unit + 256, in, lane), 16, half(320), 0};
    case PanelFormat::kQ5M:
      return {nibble(unit, in, lane) + 16 * fifth_bit(unit + 256, in, lane), 0, half(320),
              half(352)};
    case PanelFormat::kQ4K:
    case PanelFormat::kQ5K: {
      const bool five = panels.format() == PanelFormat::kQ5K;
      const uint8_t* codes = unit + kQ4KCodes + group * (five ? kQ5KGroupBytes : kQ4KGroupBytes);
      const int code = nibble(codes, in, lane) + (five ? 16 * fifth_bit(codes + 256, in, lane) : 0);
      const float s = half(0) * static_cast<float>(unit[kQ4KScales + group * 16 + lane]);
      const float m = half(32) * static_cast<float>(unit[kQ4KMins + group * 16 + lane]);
      return {code, 0, s, -m};
    }
    case PanelFormat::kQ6K: {
      const uint8_t* codes = unit + kQ6KCodes + group * kQ6KGroupBytes;
      const int code = nibble(codes, in, lane) + 16 * high_pair(codes + 256, in, lane);
      const auto scale = static_cast<int8_t>(unit[kQ6KScales + k % 256 / 16 * 16 + lane]);
      return {code, 32, half(0) * static_cast<float>(scale), 0};
    }
    default:
      return {};
  }
}

float float_weight(Panels& panels, size_t panel, size_t k, size_t lane) {
  const uint8_t* p = panels.data() + panel * panels.panel_bytes();
  float w = 0;
  switch (panels.format()) {
    case PanelFormat::kF32:
      std::memcpy(&w, p + (k * kLanes + lane) * 4, 4);
      return w;
    case PanelFormat::kF16:
      return static_cast<float>(half_value(p, k * kLanes + lane));
    default: {
      const uint8_t* at = p + k / 2 * 64 + lane * 4 + k % 2 * 2;
      const uint32_t bits = (at[0] | static_cast<uint32_t>(at[1]) << 8) << 16;
      std::memcpy(&w, &bits, 4);
      return w;
    }
  }
}

bool has_minimum(PanelFormat format) {
  return format == PanelFormat::kQ4M || format == PanelFormat::kQ5M ||
         format == PanelFormat::kQ4K || format == PanelFormat::kQ5K;
}

}  // namespace

float promised(Panels& panels, size_t panel, size_t lane, const Activations& x, size_t row,
               bool fused) {
  const auto add = [fused](float a, float b, float sum) {
    return fused ? std::fma(a, b, sum) : sum + a * b;
  };
  const size_t k_count = panels.k();
  float f = 0;
  if (!layout_of(panels.format()).quantized) {
    for (size_t begin = 0; begin < k_count; begin += kGroup) {
      float t = 0;
      for (size_t k = begin; k < begin + kGroup && k < k_count; ++k) {
        t = add(float_weight(panels, panel, k, lane), x.x(row, k), t);
      }
      f = f + t;
    }
    return f;
  }
  const size_t span = panels.format() == PanelFormat::kQ6K ? 16 : 32;
  for (size_t begin = 0; begin < k_count; begin += span) {
    int dot = 0;
    Weight w;
    for (size_t k = begin; k < begin + span; ++k) {
      w = quantized_weight(panels, panel, k, lane);
      dot += (w.code - w.zero) * x.code(row, k);
    }
    const float xs = x.scale(row, begin / kGroup);
    f = add(static_cast<float>(dot), w.scale * xs, f);
    if (has_minimum(panels.format())) f = add(w.minimum, x.weighted_sum(row, begin / kGroup), f);
  }
  return f;
}

Exact exact(Panels& panels, size_t panel, size_t lane, const Activations& x, size_t row) {
  const bool quantized = layout_of(panels.format()).quantized;
  Exact sum;
  for (size_t k = 0; k < panels.k(); ++k) {
    const double w = quantized ? quantized_weight(panels, panel, k, lane).value()
                               : static_cast<double>(float_weight(panels, panel, k, lane));
    const double a = quantized ? static_cast<double>(x.scale(row, k / kGroup)) * x.code(row, k)
                               : static_cast<double>(x.x(row, k));
    sum.value += w * a;
    sum.magnitude += std::fabs(w * a);
  }
  return sum;
}

}  // namespace kvikk::matmul_test
