// The integer decoders: one plain loop for each block format. Multi-byte fields are little-endian
// and unaligned.

#include "weights/integer_blocks.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/float16.h"
#include "weights/iq_grids.h"

namespace kvikk {
namespace {

// Non-linear 4-bit values of IQ4_NL and IQ4_XS, and twice the values of E2M1.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
constexpr int8_t kE2m1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int8_t kIq2Values[4] = {8, 25, 43, 0};
constexpr int8_t kIq3XxsValues[8] = {2, 6, 10, 14, 18, 22, 26, 31};  // halves of the format's
constexpr int8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

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

// The scales 2 s + 1 of group g of 32, one for both halves or one for each.
void set_scales(IntegerBlock& target, size_t g, unsigned first, unsigned second) {
  target.scales[2 * g] = static_cast<int8_t>(2 * first + 1);
  target.scales[2 * g + 1] = static_cast<int8_t>(2 * second + 1);
}

// Eight elements from a row of two-bit indices. Sign bit i belongs to element i.
void put_row8(unsigned row, unsigned signs, int8_t* codes) {
  for (unsigned i = 0; i < 8; ++i) {
    const int8_t value = kIq2Values[row >> 2 * i & 3];
    codes[i] = static_cast<int8_t>((signs >> i & 1) != 0 ? -value : value);
  }
}

// Four elements from a row of four-bit indices.
void put_row4(unsigned row, unsigned signs, const int8_t* values, int8_t* codes) {
  for (unsigned i = 0; i < 4; ++i) {
    const int8_t value = values[row >> 4 * i & 7];
    codes[i] = static_cast<int8_t>((signs >> i & 1) != 0 ? -value : value);
  }
}

// Eight elements of -1, 0, 1, times 8, plus or minus 1.
void put_row_shifted(unsigned row, bool minus, int8_t* codes) {
  for (unsigned i = 0; i < 8; ++i) {
    const int trit = static_cast<int>(row >> 2 * i & 3) - 1;
    codes[i] = static_cast<int8_t>(8 * trit + (minus ? -1 : 1));
  }
}

// Seven sign bits, and an eighth that makes the number of minus signs even.
unsigned even_signs(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

void decode_nibbles(const uint8_t* nibbles, const int8_t* values, int8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = values[nibbles[i] & 15];
    codes[i + 16] = values[nibbles[i] >> 4];
  }
}

void decode_q3_k(const uint8_t* block, IntegerBlock& target) {
  const uint8_t* third = block;
  const uint8_t* pairs = block + 32;
  const uint8_t* scales = block + 96;
  target.d = load_half(block + 108);
  for (int i = 0; i < 16; ++i) {
    const int low = scales[i % 8] >> (i / 8 * 4) & 15;
    const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
    target.scales[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  for (int e = 0; e < 256; ++e) {
    const int low = pairs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
    const int high = third[e % 32] >> (e / 32) & 1;
    target.codes[e] = static_cast<int8_t>((low | high << 2) - 4);
  }
}

void decode_iq4_nl(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block);
  target.scales[0] = target.scales[1] = 1;
  decode_nibbles(block + 2, kIq4Values, target.codes);
}

void decode_mxfp4(const uint8_t* block, IntegerBlock& target) {
  const unsigned e = block[0];  // 2^(e - 128), below 2^-126 as a subnormal number
  target.d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  target.scales[0] = target.scales[1] = 1;
  decode_nibbles(block + 1, kE2m1Values, target.codes);
}

void decode_iq4_xs(const uint8_t* block, IntegerBlock& target) {
  const unsigned high = load_u16(block + 2);
  target.d = load_half(block);
  for (unsigned g = 0; g < 8; ++g) {
    const unsigned low = block[4 + g / 2] >> (g % 2 * 4) & 15u;
    const int scale = static_cast<int>(low | (high >> 2 * g & 3) << 4) - 32;
    target.scales[2 * g] = target.scales[2 * g + 1] = static_cast<int8_t>(scale);
    decode_nibbles(block + 8 + 16 * g, kIq4Values, target.codes + 32 * g);
  }
}

void decode_iq2_xxs(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block) / 8;
  for (size_t g = 0; g < 8; ++g) {
    const uint8_t* rows = block + 2 + 8 * g;
    const uint32_t word = load_u32(rows + 4);
    set_scales(target, g, word >> 28, word >> 28);
    for (size_t r = 0; r < 4; ++r) {
      put_row8(kIq2XxsGrid[rows[r]], even_signs(word >> 7 * r & 127),
               target.codes + 32 * g + 8 * r);
    }
  }
}

void decode_iq2_xs(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block) / 8;
  for (size_t g = 0; g < 8; ++g) {
    set_scales(target, g, block[66 + g] & 15, block[66 + g] >> 4);
  }
  for (size_t r = 0; r < 32; ++r) {
    const unsigned word = load_u16(block + 2 + 2 * r);
    put_row8(kIq2XsGrid[word & 511], even_signs(word >> 9), target.codes + 8 * r);
  }
}

void decode_iq2_s(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block) / 8;
  for (size_t g = 0; g < 8; ++g) {
    set_scales(target, g, block[74 + g] & 15, block[74 + g] >> 4);
  }
  for (size_t r = 0; r < 32; ++r) {
    const unsigned high = block[66 + r / 4] >> (r % 4 * 2) & 3u;
    put_row8(kIq2SGrid[block[2 + r] | high << 8], block[34 + r], target.codes + 8 * r);
  }
}

void decode_iq3_xxs(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block) / 2;
  for (size_t g = 0; g < 8; ++g) {
    const uint32_t word = load_u32(block + 66 + 4 * g);
    set_scales(target, g, word >> 28, word >> 28);
    for (size_t r = 0; r < 8; ++r) {
      const unsigned signs = even_signs(word >> 7 * (r / 2) & 127) >> (r % 2 * 4);
      put_row4(kIq3XxsGrid[block[2 + 8 * g + r]], signs, kIq3XxsValues,
               target.codes + 32 * g + 4 * r);
    }
  }
}

void decode_iq3_s(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block);
  for (size_t g = 0; g < 8; ++g) {
    const unsigned scale = block[106 + g / 2] >> (g % 2 * 4) & 15u;
    set_scales(target, g, scale, scale);
  }
  for (size_t r = 0; r < 64; ++r) {
    const unsigned ninth = block[66 + r / 8] >> r % 8 & 1u;
    const unsigned signs = block[74 + r / 2] >> (r % 2 * 4);
    put_row4(kIq3SGrid[block[2 + r] | ninth << 8], signs, kIq3SValues, target.codes + 4 * r);
  }
}

void decode_iq1_s(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block) / 8;
  for (size_t g = 0; g < 8; ++g) {
    const unsigned word = load_u16(block + 34 + 2 * g);
    set_scales(target, g, word >> 12 & 7, word >> 12 & 7);
    for (size_t r = 0; r < 4; ++r) {
      const unsigned row = block[2 + 4 * g + r] | (word >> 3 * r & 7) << 8;
      put_row_shifted(kIq1Grid[row], (word & 0x8000) != 0, target.codes + 32 * g + 8 * r);
    }
  }
}

uint16_t iq1_m_scale(const uint8_t* block) {
  unsigned d = 0;
  for (unsigned i = 0; i < 4; ++i) d |= load_u16(block + 48 + 2 * i) >> 12 << 4 * i;
  return static_cast<uint16_t>(d);
}

void decode_iq1_m(const uint8_t* block, IntegerBlock& target) {
  target.d = half_to_float(iq1_m_scale(block)) / 8;
  for (size_t i = 0; i < 16; ++i) {
    const unsigned scale = load_u16(block + 48 + i / 4 * 2) >> i % 4 * 3 & 7u;
    target.scales[i] = static_cast<int8_t>(2 * scale + 1);
  }
  for (size_t r = 0; r < 32; ++r) {
    const unsigned nibble = block[32 + r / 2] >> (r % 2 * 4) & 15u;
    put_row_shifted(kIq1Grid[block[r] | (nibble & 7) << 8], (nibble & 8) != 0,
                    target.codes + 8 * r);
  }
}

// A byte holds ceil(v * 256 / 243) of a number v of five trits; multiplied by 3^n modulo 256, its
// top trit is trit n, the first being the most significant.
void put_trits(const uint8_t* bytes, size_t count, int planes, int8_t* codes) {
  unsigned power = 1;
  for (int plane = 0; plane < planes; ++plane, power *= 3) {
    for (size_t i = 0; i < count; ++i) {
      const unsigned shifted = (bytes[i] * power) & 255;
      *codes++ = static_cast<int8_t>(static_cast<int>(shifted * 3 >> 8) - 1);
    }
  }
}

void decode_tq1_0(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block + 52);
  std::memset(target.scales, 1, sizeof target.scales);
  put_trits(block, 32, 5, target.codes);
  put_trits(block + 32, 16, 5, target.codes + 160);
  put_trits(block + 48, 4, 4, target.codes + 240);
}

void decode_tq2_0(const uint8_t* block, IntegerBlock& target) {
  target.d = load_half(block + 64);
  std::memset(target.scales, 1, sizeof target.scales);
  for (int e = 0; e < 256; ++e) {
    const int pair = block[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
    target.codes[e] = static_cast<int8_t>(pair - 1);
  }
}

struct IntegerFormat {
  void (*decode)(const uint8_t* block, IntegerBlock& target);
  int code_max;
  int scale_offset;  // of a float16 d; -1: elsewhere
};

// Null for the types whose blocks are something else.
const IntegerFormat* integer_format(DType type) {
  static constexpr IntegerFormat kQ3K = {decode_q3_k, 4, 108};
  static constexpr IntegerFormat kIq4Nl = {decode_iq4_nl, 127, 0};
  static constexpr IntegerFormat kIq4Xs = {decode_iq4_xs, 127, 0};
  static constexpr IntegerFormat kMxfp4 = {decode_mxfp4, 12, -1};
  static constexpr IntegerFormat kIq1S = {decode_iq1_s, 9, 0};
  static constexpr IntegerFormat kIq1M = {decode_iq1_m, 9, -1};
  static constexpr IntegerFormat kIq2Xxs = {decode_iq2_xxs, 43, 0};
  static constexpr IntegerFormat kIq2Xs = {decode_iq2_xs, 43, 0};
  static constexpr IntegerFormat kIq2S = {decode_iq2_s, 43, 0};
  static constexpr IntegerFormat kIq3Xxs = {decode_iq3_xxs, 31, 0};
  static constexpr IntegerFormat kIq3S = {decode_iq3_s, 15, 0};
  static constexpr IntegerFormat kTq1 = {decode_tq1_0, 2, 52};
  static constexpr IntegerFormat kTq2 = {decode_tq2_0, 2, 64};
  switch (type) {
    case DType::kQ3_K:
      return &kQ3K;
    case DType::kIQ4_NL:
      return &kIq4Nl;
    case DType::kIQ4_XS:
      return &kIq4Xs;
    case DType::kMXFP4:
      return &kMxfp4;
    case DType::kIQ1_S:
      return &kIq1S;
    case DType::kIQ1_M:
      return &kIq1M;
    case DType::kIQ2_XXS:
      return &kIq2Xxs;
    case DType::kIQ2_XS:
      return &kIq2Xs;
    case DType::kIQ2_S:
      return &kIq2S;
    case DType::kIQ3_XXS:
      return &kIq3Xxs;
    case DType::kIQ3_S:
      return &kIq3S;
    case DType::kTQ1_0:
      return &kTq1;
    case DType::kTQ2_0:
      return &kTq2;
    default:
      return nullptr;
  }
}

}  // namespace

bool has_integer_blocks(DType type) { return integer_format(type) != nullptr; }

void decode_integer_block(DType type, const uint8_t* block, IntegerBlock& target) {
  const IntegerFormat* format = integer_format(type);
  CHECK(format != nullptr);
  format->decode(block, target);
}

int integer_code_max(DType type) {
  const IntegerFormat* format = integer_format(type);
  CHECK(format != nullptr);
  return format->code_max;
}

bool integer_block_finite(DType type, const uint8_t* block) {
  constexpr unsigned kHalfExponent = 0x7c00;
  const IntegerFormat* format = integer_format(type);
  CHECK(format != nullptr);
  if (type == DType::kMXFP4) return block[0] != 255;
  const unsigned d =
      type == DType::kIQ1_M ? iq1_m_scale(block) : load_u16(block + format->scale_offset);
  return (d & kHalfExponent) != kHalfExponent;
}

}  // namespace kvikk
