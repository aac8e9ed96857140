// The exact decoders of every block format. They are the reference for the packed layouts and the
// kernels, and what `--exact` runs on, so they are written for plainness: one block, one loop.

#include "weights/block_formats.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/float16.h"
#include "weights/integer_blocks.h"

namespace kvikk {
namespace {

constexpr uint16_t kHalfExponent = 0x7C00;  // all ones here: infinite or NaN
constexpr uint32_t kFloatExponent = 0x7F800000;

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint32_t load_u32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float load_half(const uint8_t* p) { return half_to_float(load_u16(p)); }

void decode_q8_0(const uint8_t* block, float* target) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i)
    target[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

void decode_q4_0(const uint8_t* block, float* target) {
  const float d = load_half(block);
  const uint8_t* nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    target[i] = d * static_cast<float>((nibbles[i] & 15) - 8);
    target[i + 16] = d * static_cast<float>((nibbles[i] >> 4) - 8);
  }
}

void decode_q4_1(const uint8_t* block, float* target) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const uint8_t* nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    target[i] = d * static_cast<float>(nibbles[i] & 15) + m;
    target[i + 16] = d * static_cast<float>(nibbles[i] >> 4) + m;
  }
}

void decode_q5_0(const uint8_t* block, float* target) {
  const float d = load_half(block);
  const uint32_t fifth = load_u32(block + 2);
  const uint8_t* nibbles = block + 6;
  for (int i = 0; i < 16; ++i) {
    const int low = (nibbles[i] & 15) | static_cast<int>((fifth >> i & 1) << 4);
    const int high = (nibbles[i] >> 4) | static_cast<int>((fifth >> (i + 16) & 1) << 4);
    target[i] = d * static_cast<float>(low - 16);
    target[i + 16] = d * static_cast<float>(high - 16);
  }
}

void decode_q5_1(const uint8_t* block, float* target) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const uint32_t fifth = load_u32(block + 4);
  const uint8_t* nibbles = block + 8;
  for (int i = 0; i < 16; ++i) {
    const int low = (nibbles[i] & 15) | static_cast<int>((fifth >> i & 1) << 4);
    const int high = (nibbles[i] >> 4) | static_cast<int>((fifth >> (i + 16) & 1) << 4);
    target[i] = d * static_cast<float>(low) + m;
    target[i + 16] = d * static_cast<float>(high) + m;
  }
}

// Q4_K and Q5_K. `fifth` is null in Q4_K; groups 2p and 2p + 1 share the 32 nibble bytes of pair p.
void decode_k_groups(const uint8_t* block, const uint8_t* fifth, const uint8_t* nibbles,
                     float* target) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  uint8_t scales[8];
  uint8_t minimums[8];
  unpack_k_scales(block + 4, scales, minimums);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(scales[group]);
    const float minimum = m * static_cast<float>(minimums[group]);
    const uint8_t* bytes = nibbles + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      int q = bytes[i] >> shift & 15;
      if (fifth != nullptr) q |= (fifth[i] >> group & 1) << 4;
      target[group * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void decode_q4_k(const uint8_t* block, float* target) {
  decode_k_groups(block, nullptr, block + 16, target);
}

void decode_q5_k(const uint8_t* block, float* target) {
  decode_k_groups(block, block + 16, block + 48, target);
}

void decode_q6_k(const uint8_t* block, float* target) {
  const uint8_t* nibbles = block;      // [2 halves, 64]
  const uint8_t* pairs = block + 128;  // [2 halves, 32]
  const uint8_t* scales = block + 192;
  const float d = load_half(block + 208);
  float group_scale[16];
  for (int group = 0; group < 16; ++group) {
    group_scale[group] = d * static_cast<float>(static_cast<int8_t>(scales[group]));
  }
  // Element e of a half: nibble byte e % 64 (low for e < 64), bit pair e / 32 of byte e % 32.
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128;
    const int in_half = e % 128;
    const int low = nibbles[half * 64 + in_half % 64] >> (in_half / 64 * 4) & 15;
    const int high = pairs[half * 32 + in_half % 32] >> (in_half / 32 * 2) & 3;
    target[e] = group_scale[e / 16] * static_cast<float>((low | high << 4) - 32);
  }
}

// 16 groups of 16 bit pairs; a scale byte holds the scale below and the minimum above.
void decode_q2_k(const uint8_t* block, float* target) {
  const uint8_t* pairs = block + 16;
  const float d = load_half(block + 80);
  const float m = load_half(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block[group] & 15);
    const float minimum = m * static_cast<float>(block[group] >> 4);
    for (int e = group * 16; e < group * 16 + 16; ++e) {
      const int q = pairs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
      target[e] = scale * static_cast<float>(q) - minimum;
    }
  }
}

using BlockDecoder = void (*)(const uint8_t* block, float* target);

void decode_blocks(BlockDecoder decode, const DTypeInfo& info, const uint8_t* source, float* target,
                   size_t elements) {
  for (size_t i = 0; i < elements; i += info.block_elements) {
    decode(source, target + i);
    source += info.block_bytes;
  }
}

void decode_integer_blocks(DType type, const uint8_t* source, float* target, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  IntegerBlock block;
  for (size_t i = 0; i < elements; i += info.block_elements, source += info.block_bytes) {
    decode_integer_block(type, source, block);
    for (size_t e = 0; e < info.block_elements; ++e) {
      const float scale = block.d * static_cast<float>(block.scales[e / 16]);
      target[i + e] = scale * static_cast<float>(block.codes[e]);
    }
  }
}

bool integer_blocks_finite(DType type, const uint8_t* source, size_t blocks) {
  const size_t stride = dtype_info(type).block_bytes;
  bool finite = true;
  for (size_t b = 0; b < blocks; ++b) {
    finite = integer_block_finite(type, source + b * stride) && finite;
  }
  return finite;
}

// Whether the float16 at `offset` of every block is finite, without a branch in the loop.
bool halves_finite(const uint8_t* source, size_t stride, size_t blocks) {
  uint32_t bad = 0;
  for (size_t b = 0; b < blocks; ++b) {
    bad |= static_cast<uint32_t>((load_u16(source + b * stride) & kHalfExponent) == kHalfExponent);
  }
  return bad == 0;
}

bool floats_finite(const uint8_t* source, size_t count) {
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    bad |= static_cast<uint32_t>((load_u32(source + i * 4) & kFloatExponent) == kFloatExponent);
  }
  return bad == 0;
}

bool bfloats_finite(const uint8_t* source, size_t count) {
  constexpr uint16_t kExponent = 0x7F80;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    bad |= static_cast<uint32_t>((load_u16(source + i * 2) & kExponent) == kExponent);
  }
  return bad == 0;
}

bool e4m3_finite(const uint8_t* source, size_t count) {
  bool finite = true;
  for (size_t i = 0; i < count; ++i) finite = finite && (source[i] & 0x7f) != 0x7f;
  return finite;
}

bool blocks_finite(DType type, const uint8_t* source, size_t blocks) {
  const size_t stride = dtype_info(type).block_bytes;
  switch (type) {
    case DType::kF32:
      return floats_finite(source, blocks);
    case DType::kBF16:
      return bfloats_finite(source, blocks);
    case DType::kF16:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
      return halves_finite(source, stride, blocks);
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return halves_finite(source, stride, blocks) && halves_finite(source + 2, stride, blocks);
    case DType::kQ6_K:
      return halves_finite(source + 208, stride, blocks);
    case DType::kQ2_K:
      return halves_finite(source + 80, stride, blocks) &&
             halves_finite(source + 82, stride, blocks);
    case DType::kF8_E4M3:
      return e4m3_finite(source, blocks);
    case DType::kF4_E2M1:
      return true;
    default:
      return integer_blocks_finite(type, source, blocks);
  }
}

}  // namespace

void unpack_k_scales(const uint8_t* packed, uint8_t* scales, uint8_t* minimums) {
  // Groups 0..3 lie in the low 6 bits of bytes 0..3 and 4..7. Groups 4..7 have their low 4 bits in
  // the nibbles of bytes 8..11 and their high 2 bits in what bytes 0..7 have left.
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 63;
    minimums[i] = packed[i + 4] & 63;
    scales[i + 4] = static_cast<uint8_t>((packed[i + 8] & 15) | packed[i] >> 6 << 4);
    minimums[i + 4] = static_cast<uint8_t>(packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4);
  }
}

float e4m3_to_float(uint8_t bits) {
  const unsigned exponent = bits >> 3 & 15u;
  const unsigned mantissa = bits & 7u;
  float value = static_cast<float>(mantissa) * 0x1p-9f;
  if (exponent > 0)
    value = std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
  if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -value : value;
}

void dequantize_row(DType type, const uint8_t* source, float* target, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(elements % info.block_elements == 0);
  switch (type) {
    case DType::kF32:
      std::memcpy(target, source, elements * sizeof(float));
      return;
    case DType::kF16:
      for (size_t i = 0; i < elements; ++i) target[i] = load_half(source + i * 2);
      return;
    case DType::kBF16:
      for (size_t i = 0; i < elements; ++i) {
        target[i] = bfloat16_to_float(load_u16(source + i * 2));
      }
      return;
    case DType::kQ8_0:
      return decode_blocks(decode_q8_0, info, source, target, elements);
    case DType::kQ4_0:
      return decode_blocks(decode_q4_0, info, source, target, elements);
    case DType::kQ4_1:
      return decode_blocks(decode_q4_1, info, source, target, elements);
    case DType::kQ5_0:
      return decode_blocks(decode_q5_0, info, source, target, elements);
    case DType::kQ5_1:
      return decode_blocks(decode_q5_1, info, source, target, elements);
    case DType::kQ4_K:
      return decode_blocks(decode_q4_k, info, source, target, elements);
    case DType::kQ5_K:
      return decode_blocks(decode_q5_k, info, source, target, elements);
    case DType::kQ6_K:
      return decode_blocks(decode_q6_k, info, source, target, elements);
    case DType::kQ2_K:
      return decode_blocks(decode_q2_k, info, source, target, elements);
    case DType::kF8_E4M3:
      for (size_t i = 0; i < elements; ++i) target[i] = e4m3_to_float(source[i]);
      return;
    default:
      return decode_integer_blocks(type, source, target, elements);
  }
}

std::optional<size_t> find_non_finite_block(DType type, const uint8_t* source, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(elements % info.block_elements == 0);
  const size_t blocks = elements / info.block_elements;
  if (blocks_finite(type, source, blocks)) return std::nullopt;
  for (size_t b = 0; b < blocks; ++b) {
    if (!blocks_finite(type, source + b * info.block_bytes, 1)) return b;
  }
  return std::nullopt;
}

}  // namespace kvikk
