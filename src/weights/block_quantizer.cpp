#include "weights/block_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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
  for (int i = 0; i < kGroupSize; ++i) {
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * id)));
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
  float error = 0.0f;
  uint8_t codes[kGroupSize] = {};
};

// The nearest codes for a scale and a minimum, and the squared error that they leave.
void round_codes(const float* x, Group& group) {
  const float id = inverse(group.scale);
  float error = 0.0f;
  for (int i = 0; i < kGroupSize; ++i) {
    const float t = std::clamp((x[i] + group.minimum) * id, 0.0f, 15.0f);
    const int q = static_cast<int>(t + 0.5f);
    const float difference = group.scale * static_cast<float>(q) - group.minimum - x[i];
    group.codes[i] = static_cast<uint8_t>(q);
    error += difference * difference;
  }
  group.error = error;
}

// Scale and minimum of least squared error for the codes.
void fit(const float* x, Group& group) {
  float sum_x = 0, sum_q = 0, sum_qq = 0, sum_qx = 0;
  for (int i = 0; i < kGroupSize; ++i) {
    const auto q = static_cast<float>(group.codes[i]);
    sum_x += x[i];
    sum_q += q;
    sum_qq += q * q;
    sum_qx += q * x[i];
  }
  const float n = kGroupSize;
  const float determinant = n * sum_qq - sum_q * sum_q;
  if (determinant <= 0.0f) return;
  group.scale = (n * sum_qx - sum_q * sum_x) / determinant;
  group.minimum = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
  if (group.minimum < 0.0f) {  // the format has no negative ones
    group.minimum = 0.0f;
    group.scale = sum_qq > 0.0f ? sum_qx / sum_qq : 0.0f;
  }
  group.scale = std::max(group.scale, 0.0f);
}

// Starts from scales that spread the range over 15 +- 1 steps, as clipping the ends may pay.
Group search_group(const float* x) {
  float low = 0.0f;
  float high = 0.0f;
  for (int i = 0; i < kGroupSize; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  Group best;
  best.minimum = -low;
  best.scale = (high - low) / kCodeMax;
  round_codes(x, best);
  constexpr int kCandidates = 12;
  for (int c = -kCandidates / 2; c <= kCandidates / 2; ++c) {
    Group group;
    group.minimum = -low;
    group.scale = (high - low) / (kCodeMax + 0.2f * static_cast<float>(c));
    round_codes(x, group);
    for (int round = 0; round < 2; ++round) {
      fit(x, group);
      round_codes(x, group);
      if (group.error < best.error) best = group;
    }
  }
  return best;
}

struct Block {
  float d = 0.0f;
  float dmin = 0.0f;
  int scales[kGroups] = {};
  int minimums[kGroups] = {};
  Group groups[kGroups];
};

Group group_of(const Block& block, int scale, int minimum, const float* x) {
  Group group;
  group.scale = block.d * static_cast<float>(scale);
  group.minimum = block.dmin * static_cast<float>(minimum);
  round_codes(x, group);
  return group;
}

float half_of(float value) { return half_to_float(float_to_half(value)); }

// The 6-bit scales nearest to what each group wants, or a step beside.
void choose_scales(const float* x, Block& block) {
  for (int g = 0; g < kGroups; ++g) {
    const Group wanted = block.groups[g];
    const auto nearest = [](float value, float unit) {
      return static_cast<int>(std::clamp(value * inverse(unit) + 0.5f, 0.0f, 63.0f));
    };
    const int scale = nearest(wanted.scale, block.d);
    const int minimum = nearest(wanted.minimum, block.dmin);
    bool first = true;
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, kScaleMax); ++s) {
      for (int m = std::max(minimum - 1, 0); m <= std::min(minimum + 1, kScaleMax); ++m) {
        const Group group = group_of(block, s, m, x + g * kGroupSize);
        if (!first && group.error >= block.groups[g].error) continue;
        first = false;
        block.groups[g] = group;
        block.scales[g] = s;
        block.minimums[g] = m;
      }
    }
  }
}

// d and dmin of least squared error for all codes and 6-bit scales together.
void fit_block(const float* x, Block& block) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // x ~ d a - dmin b
  for (int i = 0; i < kGroups * kGroupSize; ++i) {
    const int g = i / kGroupSize;
    const double a = block.scales[g] * block.groups[g].codes[i % kGroupSize];
    const double b = block.minimums[g];
    aa += a * a;
    ab += a * b;
    bb += b * b;
    ax += a * static_cast<double>(x[i]);
    bx += b * static_cast<double>(x[i]);
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant <= 1e-9 * aa * bb) return;
  const double d = (ax * bb - bx * ab) / determinant;
  const double dmin = (ax * ab - bx * aa) / determinant;
  if (d <= 0 || dmin <= 0) return;
  block.d = half_of(static_cast<float>(d));
  block.dmin = half_of(static_cast<float>(dmin));
}

float error_of(const Block& block) {
  float error = 0.0f;
  for (const Group& group : block.groups) error += group.error;
  return error;
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
      byte = static_cast<uint8_t>(byte | block.groups[g].codes[i] << (g % 2 * 4));
    }
  }
}

bool quantize_q4_k(const float* x, uint8_t* target) {
  Block block;
  float scale_max = 0.0f;
  float minimum_max = 0.0f;
  for (int g = 0; g < kGroups; ++g) {
    block.groups[g] = search_group(x + g * kGroupSize);
    scale_max = std::max(scale_max, block.groups[g].scale);
    minimum_max = std::max(minimum_max, block.groups[g].minimum);
  }
  block.d = half_of(scale_max / kScaleMax);
  block.dmin = half_of(minimum_max / kScaleMax);
  choose_scales(x, block);
  constexpr int kRounds = 2;
  for (int round = 0; round < kRounds; ++round) {
    Block refined = block;
    fit_block(x, refined);
    choose_scales(x, refined);
    if (error_of(refined) >= error_of(block)) break;
    block = refined;
  }
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
