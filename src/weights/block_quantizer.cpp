#include "weights/block_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/float16.h"
#include "weights/half_round.h"

namespace kvikk {
namespace {

constexpr int kGroupSize = 32;
constexpr int kGroups = 8;  // of a Q4_K block
constexpr int kCodeMax = 15;
constexpr int kScaleMax = 63;

bool store_half(float value, uint8_t* target) {
  const uint16_t half = float_to_half(value);
  std::memcpy(target, &half, sizeof half);
  return (half & 0x7c00) != 0x7c00;
}

// The reference divides by the scale before that is rounded to float16.
float inverse(float d) {
  const float id = d != 0.0f ? 1.0f / d : 0.0f;
  return std::isfinite(id) ? id : 0.0f;
}

bool quantize_q8_0(const float* x, uint8_t* block) {
  float largest = 0.0f;
  for (int i = 0; i < kGroupSize; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float d = largest / 127;
  const float id = inverse(d);
  for (int i = 0; i < kGroupSize; ++i) {  // to the nearest, halves away from zero
    const float scaled = x[i] * id;
    const float magnitude = std::fabs(scaled);
    const int whole = static_cast<int>(magnitude);
    const int q = whole + (magnitude - static_cast<float>(whole) >= 0.5f ? 1 : 0);
    block[2 + i] = static_cast<uint8_t>(scaled < 0.0f ? -q : q);
  }
  return store_half(d, block);
}

bool quantize_q4_0(const float* x, uint8_t* block) {
  float largest = 0.0f;  // with its sign: it becomes -8
  for (int i = 0; i < kGroupSize; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  const float d = largest / -8;
  const float id = inverse(d);
  const auto code = [&](float v) { return std::min(15, static_cast<int>(v * id + 8.5f)); };
  for (int i = 0; i < 16; ++i) {
    block[2 + i] = static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4);
  }
  return store_half(d, block);
}

// One group of Q4_K: x is about scale * code - minimum.
struct Group {
  float scale = 0.0f;
  float minimum = 0.0f;
  float error = 0.0f;  // squared
};

// Sums in eight strands, which a compiler may compute side by side.
float sum(const float* values) {
  float strands[8] = {};
  for (int i = 0; i < kGroupSize; i += 8) {
    for (int j = 0; j < 8; ++j) strands[j] += values[i + j];
  }
  return ((strands[0] + strands[4]) + (strands[2] + strands[6])) +
         ((strands[1] + strands[5]) + (strands[3] + strands[7]));
}

// The nearest codes for a scale and a minimum.
void round_codes(const float* x, float scale, float minimum, float* codes) {
  const float id = inverse(scale);
  for (int i = 0; i < kGroupSize; ++i) {
    float t = (x[i] + minimum) * id + 0.5f;
    t = t > 0.0f ? t : 0.0f;
    t = t < 15.5f ? t : 15.5f;
    codes[i] = static_cast<float>(static_cast<int>(t));
  }
}

float error_of(const float* x, float scale, float minimum, const float* codes) {
  float squares[kGroupSize];
  for (int i = 0; i < kGroupSize; ++i) {
    const float difference = scale * codes[i] - minimum - x[i];
    squares[i] = difference * difference;
  }
  return sum(squares);
}

// Scale and minimum of least squared error for the codes. A residual is orthogonal to what was
// fitted, which gives the error without another look at the elements.
Group fit(const float* x, float sum_x, float sum_xx, const float* codes) {
  float squares[kGroupSize];
  float products[kGroupSize];
  for (int i = 0; i < kGroupSize; ++i) {
    squares[i] = codes[i] * codes[i];
    products[i] = codes[i] * x[i];
  }
  const float sum_q = sum(codes);
  const float sum_qq = sum(squares);
  const float sum_qx = sum(products);
  const float n = kGroupSize;
  const float determinant = n * sum_qq - sum_q * sum_q;
  Group group;
  if (determinant > 0.0f) {
    group.scale = (n * sum_qx - sum_q * sum_x) / determinant;
    group.minimum = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
  }
  if (determinant <= 0.0f || group.minimum < 0.0f) {  // the format has no negative ones
    group.minimum = 0.0f;
    group.scale = sum_qq > 0.0f ? std::max(sum_qx / sum_qq, 0.0f) : 0.0f;
  }
  if (group.scale < 0.0f) return {0.0f, 0.0f, sum_xx};
  group.error = sum_xx - group.scale * sum_qx + group.minimum * sum_x;
  return group;
}

// Starts from scales that spread the range over 15 +- some steps, as clipping the ends may pay.
Group search_group(const float* x) {
  float low = 0.0f;
  float high = 0.0f;
  float squares[kGroupSize];
  for (int i = 0; i < kGroupSize; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    squares[i] = x[i] * x[i];
  }
  const float sum_x = sum(x);
  const float sum_xx = sum(squares);
  float codes[kGroupSize];
  Group best = {(high - low) / kCodeMax, -low, 0.0f};
  round_codes(x, best.scale, best.minimum, codes);
  best.error = error_of(x, best.scale, best.minimum, codes);
  constexpr int kCandidates = 13;
  for (int c = 0; c < kCandidates; ++c) {
    const float steps = kCodeMax - 1.2f + 0.2f * static_cast<float>(c);
    round_codes(x, (high - low) / steps, -low, codes);
    const Group group = fit(x, sum_x, sum_xx, codes);
    if (group.error < best.error) best = group;
  }
  round_codes(x, best.scale, best.minimum, codes);
  const Group again = fit(x, sum_x, sum_xx, codes);
  return again.error < best.error ? again : best;
}

struct Block {
  float d = 0.0f;
  float dmin = 0.0f;
  int scales[kGroups] = {};
  int minimums[kGroups] = {};
  float codes[kGroups * kGroupSize] = {};
  float error = 0.0f;
};

float half_of(float value) { return half_to_float(float_to_half(value)); }

// The 6-bit scales within `reach` of what each group wants, and the nearest codes for them.
void choose_scales(const float* x, const Group* wanted, int reach, Block& block) {
  const auto nearest = [](float value, float unit) {
    return static_cast<int>(std::clamp(value * inverse(unit) + 0.5f, 0.0f, 63.0f));
  };
  block.error = 0.0f;
  for (int g = 0; g < kGroups; ++g) {
    const int scale = nearest(wanted[g].scale, block.d);
    const int minimum = nearest(wanted[g].minimum, block.dmin);
    float least = std::numeric_limits<float>::infinity();
    for (int s = std::max(scale - reach, 0); s <= std::min(scale + reach, kScaleMax); ++s) {
      for (int m = std::max(minimum - reach, 0); m <= std::min(minimum + reach, kScaleMax); ++m) {
        const float real_scale = block.d * static_cast<float>(s);
        const float real_minimum = block.dmin * static_cast<float>(m);
        float codes[kGroupSize];
        round_codes(x + g * kGroupSize, real_scale, real_minimum, codes);
        const float error = error_of(x + g * kGroupSize, real_scale, real_minimum, codes);
        if (error >= least) continue;
        least = error;
        block.scales[g] = s;
        block.minimums[g] = m;
        std::copy_n(codes, kGroupSize, block.codes + g * kGroupSize);
      }
    }
    block.error += least;
  }
}

// d and dmin of least squared error for all codes and 6-bit scales together.
void fit_block(const float* x, Block& block) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // x ~ d a - dmin b
  for (int g = 0; g < kGroups; ++g) {
    const float* codes = block.codes + g * kGroupSize;
    float squares[kGroupSize];
    float products[kGroupSize];
    for (int i = 0; i < kGroupSize; ++i) {
      squares[i] = codes[i] * codes[i];
      products[i] = codes[i] * x[g * kGroupSize + i];
    }
    const double s = block.scales[g];
    const double m = block.minimums[g];
    aa += s * s * static_cast<double>(sum(squares));
    ab += s * m * static_cast<double>(sum(codes));
    bb += m * m * kGroupSize;
    ax += s * static_cast<double>(sum(products));
    bx += m * static_cast<double>(sum(x + g * kGroupSize));
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant <= 1e-9 * aa * bb) return;
  const double d = (ax * bb - bx * ab) / determinant;
  const double dmin = (ax * ab - bx * aa) / determinant;
  if (d <= 0 || dmin <= 0) return;
  block.d = half_of(static_cast<float>(d));
  block.dmin = half_of(static_cast<float>(dmin));
}

void write_q4_k(const Block& block, uint8_t* target) {
  std::memset(target, 0, 144);
  for (int g = 0; g < 4; ++g) {  // block_formats.cpp, unpack_k_scales, has the layout
    const int s = block.scales[g + 4];
    const int m = block.minimums[g + 4];
    target[4 + g] = static_cast<uint8_t>(block.scales[g] | s >> 4 << 6);
    target[8 + g] = static_cast<uint8_t>(block.minimums[g] | m >> 4 << 6);
    target[12 + g] = static_cast<uint8_t>((s & 15) | (m & 15) << 4);
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < kGroupSize; ++i) {
      uint8_t& byte = target[16 + g / 2 * kGroupSize + i];
      byte = static_cast<uint8_t>(byte | static_cast<int>(block.codes[g * kGroupSize + i])
                                             << (g % 2 * 4));
    }
  }
}

bool quantize_q4_k(const float* x, uint8_t* target) {
  Group groups[kGroups];
  float scale_max = 0.0f;
  float minimum_max = 0.0f;
  for (int g = 0; g < kGroups; ++g) {
    groups[g] = search_group(x + g * kGroupSize);
    scale_max = std::max(scale_max, groups[g].scale);
    minimum_max = std::max(minimum_max, groups[g].minimum);
  }
  Block block;
  block.d = half_of(scale_max / kScaleMax);
  block.dmin = half_of(minimum_max / kScaleMax);
  choose_scales(x, groups, 0, block);
  Block refined = block;
  fit_block(x, refined);
  choose_scales(x, groups, 1, refined);
  if (refined.error < block.error) block = refined;
  write_q4_k(block, target);
  const bool finite = store_half(block.d, target);
  return store_half(block.dmin, target + 2) && finite;
}

}  // namespace

std::optional<DType> quantized_type(std::string_view name) {
  if (name == "q8_0") return DType::kQ8_0;
  if (name == "q4_0") return DType::kQ4_0;
  if (name == "q4_k") return DType::kQ4_K;
  return std::nullopt;
}

std::optional<DType> fitting_type(DType wanted, size_t elements) {
  if (elements % dtype_info(wanted).block_elements == 0) return wanted;
  if (elements % dtype_info(DType::kQ8_0).block_elements == 0) return DType::kQ8_0;
  return std::nullopt;
}

bool quantize_row(DType type, const float* source, uint8_t* target, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(type == DType::kQ8_0 || type == DType::kQ4_0 || type == DType::kQ4_K);
  CHECK(elements % info.block_elements == 0);
  bool finite = true;
  float values[256];
  for (size_t i = 0; i < elements; i += info.block_elements, target += info.block_bytes) {
    for (size_t e = 0; e < info.block_elements; ++e) {  // no code is made of what is no number
      finite = finite && std::isfinite(source[i + e]);
      values[e] = std::isfinite(source[i + e]) ? source[i + e] : 0.0f;
    }
    if (type == DType::kQ8_0) finite = quantize_q8_0(values, target) && finite;
    if (type == DType::kQ4_0) finite = quantize_q4_0(values, target) && finite;
    if (type == DType::kQ4_K) finite = quantize_q4_k(values, target) && finite;
  }
  return finite;
}

}  // namespace kvikk
