// Reference matrix products over every panel format. Each output is one walk over K in the order
// that kernels.h fixes.

#include <cstring>

#include "kernels/float16.h"
#include "kernels/kernels.h"

namespace kvikk::scalar {

namespace {

float half_at(const uint8_t* p, size_t lane) {
  uint16_t bits = 0;
  std::memcpy(&bits, p + 2 * lane, 2);
  return half_to_float(bits);
}

// The activations of one row, group by group, inside its block.
struct RowView {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  const float* weighted_sums;
  size_t stride;  // rows of the block

  RowView(const QuantizedRows& x, size_t row) {
    const size_t block = row / kRowBlock * kRowBlock;
    stride = x.rows - block < kRowBlock ? x.rows - block : kRowBlock;
    const size_t at = block * x.groups + (row - block);
    codes = x.codes + (block * x.groups) * kGroup + (row - block) * kGroup;
    scales = x.scales + at;
    sums = x.sums + 2 * at;
    weighted_sums = x.weighted_sums + at;
  }
  const int8_t* group(size_t g) const { return codes + g * stride * kGroup; }
};

// One group of 32 codes of 16 rows, unpacked: codes[k][lane].
struct Group {
  uint8_t codes[kGroup][kPanelRows];
};

void unpack_bytes(const uint8_t* quads, Group& out) {
  for (size_t k = 0; k < kGroup; ++k) {
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      out.codes[k][lane] = quads[k / 4 * 64 + lane * 4 + k % 4];
    }
  }
}

void unpack_nibbles(const uint8_t* lines, Group& out) {
  for (size_t k = 0; k < kGroup; ++k) {
    const size_t quad = k / 4;
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t byte = lines[quad / 2 * 64 + lane * 4 + k % 4];
      out.codes[k][lane] = quad % 2 == 0 ? byte & 15 : byte >> 4;
    }
  }
}

void add_fifth_bits(const uint8_t* bits, Group& out) {
  for (size_t k = 0; k < kGroup; ++k) {
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const size_t bit = k / 4 * 64 + lane * 4 + k % 4;
      out.codes[k][lane] |= static_cast<uint8_t>((bits[bit / 8] >> bit % 8 & 1) << 4);
    }
  }
}

void add_high_pairs(const uint8_t* lines, Group& out) {
  for (size_t k = 0; k < kGroup; ++k) {
    const size_t quad = k / 4;
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t byte = lines[quad / 4 * 64 + lane * 4 + k % 4];
      out.codes[k][lane] |= static_cast<uint8_t>((byte >> 2 * (quad % 4) & 3) << 4);
    }
  }
}

int32_t dot(const Group& group, size_t lane, const int8_t* x, size_t begin, size_t end) {
  int32_t sum = 0;
  for (size_t k = begin; k < end; ++k) sum += group.codes[k][lane] * x[k];
  return sum;
}

// f += (dot - zero * sum) * (s * xs), then + m * weighted sum when the format has minima.
void accumulate(const Group& group, const RowView& x, size_t g, int zero, const float* s,
                const float* m, float* f) {
  const size_t at = g * x.stride;
  const int32_t offset = zero * (x.sums[2 * at] + x.sums[2 * at + 1]);
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    const int32_t d = dot(group, lane, x.group(g), 0, kGroup) - offset;
    f[lane] += static_cast<float>(d) * (s[lane] * x.scales[at]);
    if (m != nullptr) f[lane] += m[lane] * x.weighted_sums[at];
  }
}

enum class Bits { kFour, kFive, kEight };

template <Bits kBits, int kZero, bool kHasMin>
void group_panel(const uint8_t* panel, size_t groups, const RowView& x, float* f) {
  constexpr size_t kCodeBytes = kBits == Bits::kEight ? 512 : kBits == Bits::kFive ? 320 : 256;
  constexpr size_t kUnit = kCodeBytes + (kHasMin ? 64 : 32);
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* unit = panel + g * kUnit;
    Group group;
    if (kBits == Bits::kEight) {
      unpack_bytes(unit, group);
    } else {
      unpack_nibbles(unit, group);
      if (kBits == Bits::kFive) add_fifth_bits(unit + 256, group);
    }
    float s[kPanelRows];
    float m[kPanelRows];
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      s[lane] = half_at(unit + kCodeBytes, lane);
      if (kHasMin) m[lane] = half_at(unit + kCodeBytes + 32, lane);
    }
    accumulate(group, x, g, kZero, s, kHasMin ? m : nullptr, f);
  }
}

template <bool kFive>
void k45_panel(const uint8_t* panel, size_t groups, const RowView& x, float* f) {
  constexpr size_t kGroupBytes = kFive ? kQ5KGroupBytes : kQ4KGroupBytes;
  constexpr size_t kUnit = kQ4KCodes + 8 * kGroupBytes;
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* unit = panel + g / 8 * kUnit;
    const uint8_t* codes = unit + kQ4KCodes + g % 8 * kGroupBytes;
    Group group;
    unpack_nibbles(codes, group);
    if (kFive) add_fifth_bits(codes + 256, group);
    float s[kPanelRows];
    float m[kPanelRows];
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const size_t at = g % 8 * kPanelRows + lane;
      s[lane] = half_at(unit, lane) * static_cast<float>(unit[kQ4KScales + at]);
      m[lane] = -(half_at(unit + 32, lane) * static_cast<float>(unit[kQ4KMins + at]));
    }
    accumulate(group, x, g, 0, s, m, f);
  }
}

void q6k_panel(const uint8_t* panel, size_t groups, const RowView& x, float* f) {
  constexpr size_t kUnit = kQ6KCodes + 8 * kQ6KGroupBytes;
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* unit = panel + g / 8 * kUnit;
    const uint8_t* codes = unit + kQ6KCodes + g % 8 * kQ6KGroupBytes;
    Group group;
    unpack_nibbles(codes, group);
    add_high_pairs(codes + 256, group);
    const size_t at = g * x.stride;
    for (size_t half = 0; half < 2; ++half) {
      const auto* scales =
          reinterpret_cast<const int8_t*>(unit + kQ6KScales) + (g % 8 * 2 + half) * kPanelRows;
      const int32_t offset = 32 * x.sums[2 * at + half];
      for (size_t lane = 0; lane < kPanelRows; ++lane) {
        const float s = half_at(unit, lane) * static_cast<float>(scales[lane]);
        const int32_t d = dot(group, lane, x.group(g), half * 16, half * 16 + 16) - offset;
        f[lane] += static_cast<float>(d) * (s * x.scales[at]);
      }
    }
  }
}

using PanelFn = void (*)(const uint8_t* panel, size_t groups, const RowView& x, float* f);

template <PanelFn kPanel>
void quantized_matmul(const MatmulArgs& args) {
  for (size_t p = args.panel_begin; p < args.panel_end; ++p) {
    for (size_t row = 0; row < args.rows; ++row) {
      float f[kPanelRows] = {};
      kPanel(args.panels + p * args.panel_bytes, args.k / kGroup, RowView(args.quantized, row), f);
      std::memcpy(args.y + row * args.y_stride + p * kPanelRows, f, sizeof f);
    }
  }
}

float weight_f32(const uint8_t* panel, size_t k, size_t lane) {
  float w = 0.0f;
  std::memcpy(&w, panel + (k * kPanelRows + lane) * 4, 4);
  return w;
}
float weight_f16(const uint8_t* panel, size_t k, size_t lane) {
  return half_at(panel + k * 32, lane);
}
float weight_bf16(const uint8_t* panel, size_t k, size_t lane) {
  uint16_t bits = 0;
  std::memcpy(&bits, panel + k / 2 * 64 + lane * 4 + k % 2 * 2, 2);
  return bfloat16_to_float(bits);
}

template <float (*kWeight)(const uint8_t*, size_t, size_t)>
void float_matmul(const MatmulArgs& args) {
  for (size_t p = args.panel_begin; p < args.panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    for (size_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.x_stride;
      for (size_t lane = 0; lane < kPanelRows; ++lane) {
        float f = 0.0f;
        for (size_t begin = 0; begin < args.k; begin += kGroup) {
          float t = 0.0f;
          for (size_t k = begin; k < begin + kGroup && k < args.k; ++k) {
            t += kWeight(panel, k, lane) * x[k];
          }
          f += t;
        }
        args.y[row * args.y_stride + p * kPanelRows + lane] = f;
      }
    }
  }
}

}  // namespace

void fill_matmul(Kernels& kernels) {
  auto set = [&](PanelFormat format, void (*fn)(const MatmulArgs&)) {
    kernels.matmul[static_cast<size_t>(format)] = fn;
  };
  set(PanelFormat::kF32, float_matmul<weight_f32>);
  set(PanelFormat::kF16, float_matmul<weight_f16>);
  set(PanelFormat::kBF16, float_matmul<weight_bf16>);
  set(PanelFormat::kQ8, quantized_matmul<group_panel<Bits::kEight, 128, false>>);
  set(PanelFormat::kQ4, quantized_matmul<group_panel<Bits::kFour, 8, false>>);
  set(PanelFormat::kQ4M, quantized_matmul<group_panel<Bits::kFour, 0, true>>);
  set(PanelFormat::kQ5, quantized_matmul<group_panel<Bits::kFive, 16, false>>);
  set(PanelFormat::kQ5M, quantized_matmul<group_panel<Bits::kFive, 0, true>>);
  set(PanelFormat::kQ4K, quantized_matmul<k45_panel<false>>);
  set(PanelFormat::kQ5K, quantized_matmul<k45_panel<true>>);
  set(PanelFormat::kQ6K, quantized_matmul<q6k_panel>);
}

}  // namespace kvikk::scalar
