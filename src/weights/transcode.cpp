#include "weights/transcode.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/float16.h"
#include "weights/block_formats.h"
#include "weights/half_round.h"
#include "weights/integer_blocks.h"

namespace kvikk {
namespace {

constexpr size_t kQ8Bytes = 34;
constexpr size_t kQ4Bytes = 18;
constexpr uint16_t kHalfNan = 0x7e00;

void store_half(uint8_t* target, float value) {
  const uint16_t half = float_to_half(value);
  std::memcpy(target, &half, sizeof half);
}

// 32 floats to the Q8_0 block that is nearest for its float16 scale.
void round_to_q8(const float* values, uint8_t* target) {
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    finite = finite && std::isfinite(values[i]);
    largest = std::fmax(largest, std::fabs(values[i]));
  }
  uint16_t half = finite ? float_to_half(largest / 127) : kHalfNan;
  const float scale = half_to_float(half);
  std::memcpy(target, &half, sizeof half);
  for (int i = 0; i < 32; ++i) {
    const float q = finite && scale > 0.0f ? std::nearbyint(values[i] / scale) : 0.0f;
    target[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::fmin(127, std::fmax(-127, q))));
  }
}

void q2_k_to_q8(const uint8_t* block, uint8_t* target) {
  float values[256];
  dequantize_row(DType::kQ2_K, block, values, 256);
  for (size_t g = 0; g < 8; ++g) round_to_q8(values + 32 * g, target + kQ8Bytes * g);
}

void integers_to_q8(const IntegerBlock& block, size_t elements, int code_max, uint8_t* target) {
  // Powers of two above float16's range fit once the codes take over three bits of them.
  constexpr float kHalfEnd = 65536.0f;
  for (size_t g = 0; g < elements / 32; ++g, target += kQ8Bytes) {
    const int8_t* codes = block.codes + 32 * g;
    const float first = block.d * static_cast<float>(block.scales[2 * g]);
    const float second = block.d * static_cast<float>(block.scales[2 * g + 1]);
    if (block.scales[2 * g] == block.scales[2 * g + 1]) {
      const int shift = std::fabs(first) >= kHalfEnd && code_max * 8 <= 127 ? 3 : 0;
      store_half(target, std::ldexp(first, -shift));
      for (int i = 0; i < 32; ++i) {
        target[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(codes[i] * (1 << shift)));
      }
      continue;
    }
    float values[32];
    for (int i = 0; i < 32; ++i) {
      values[i] = (i < 16 ? first : second) * static_cast<float>(codes[i]);
    }
    round_to_q8(values, target);
  }
}

void integers_to_q6_k(const IntegerBlock& block, uint8_t* target) {
  std::memset(target, 0, 192);
  for (int e = 0; e < 256; ++e) {
    const int code = block.codes[e] + 32;
    const int half = e / 128;
    const int in_half = e % 128;
    uint8_t& nibbles = target[half * 64 + in_half % 64];
    uint8_t& pairs = target[128 + half * 32 + in_half % 32];
    nibbles = static_cast<uint8_t>(nibbles | (code & 15) << in_half / 64 * 4);
    pairs = static_cast<uint8_t>(pairs | code >> 4 << in_half / 32 * 2);
  }
  std::memcpy(target + 192, block.scales, 16);
  store_half(target + 208, block.d);
}

void integers_to_q4(const IntegerBlock& block, uint8_t* target) {
  for (size_t g = 0; g < 8; ++g, target += kQ4Bytes) {
    const int8_t* codes = block.codes + 32 * g;
    store_half(target, block.d);
    for (int i = 0; i < 16; ++i) {
      target[2 + i] = static_cast<uint8_t>((codes[i] + 8) | (codes[i + 16] + 8) << 4);
    }
  }
}

}  // namespace

DType resident_type(DType type) {
  switch (type) {
    case DType::kQ3_K:
    case DType::kIQ3_S:
    case DType::kIQ3_XXS:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return DType::kQ6_K;
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return DType::kQ4_0;
    case DType::kQ2_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return DType::kQ8_0;
    default:
      return type;
  }
}

void transcode_row(DType type, const uint8_t* source, uint8_t* target, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  const DType resident = resident_type(type);
  CHECK(resident != type);
  CHECK(elements % info.block_elements == 0);
  const size_t target_bytes = row_bytes(resident, info.block_elements);
  IntegerBlock block;
  for (size_t i = 0; i < elements; i += info.block_elements) {
    if (type == DType::kQ2_K) {
      q2_k_to_q8(source, target);
    } else {
      decode_integer_block(type, source, block);
      if (resident == DType::kQ6_K) integers_to_q6_k(block, target);
      if (resident == DType::kQ4_0) integers_to_q4(block, target);
      if (resident == DType::kQ8_0) {
        integers_to_q8(block, info.block_elements, integer_code_max(type), target);
      }
    }
    source += info.block_bytes;
    target += target_bytes;
  }
}

}  // namespace kvikk
