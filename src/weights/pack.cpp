#include "weights/pack.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "weights/block_formats.h"
#include "weights/transcode.h"

namespace kvikk {

namespace {

constexpr uint32_t kLowNibbles = 0x0f0f0f0fu;
constexpr uint8_t kZeros[256] = {};  // a block of any type that decodes to zeros, or is never used

uint32_t load32(const uint8_t* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, 4);
  return word;
}
void store32(uint8_t* p, uint32_t word) { std::memcpy(p, &word, 4); }

bool finite_half(const uint8_t* p) { return (p[1] & 0x7c) != 0x7c; }

// Places the four words of 32 nibble codes of one row: quads [8], each 4 codes in the low nibbles.
void store_nibbles(const uint32_t* quads, size_t lane, uint8_t* lines) {
  for (size_t j = 0; j < 4; ++j) {
    store32(lines + j * 64 + lane * 4, quads[2 * j] | quads[2 * j + 1] << 4);
  }
}

// ORs 4 bits of one row into the fifth-bit word of each quad; bits: 32 bits, bit k for code k.
void store_fifth_bits(uint32_t bits, size_t lane, uint8_t* words) {
  for (size_t quad = 0; quad < 8; ++quad) {
    const uint32_t four = bits >> 4 * quad & 15u;
    words[quad * 8 + lane / 2] |= static_cast<uint8_t>(four << (lane % 2 * 4));
  }
}

// One group of 32 of Q4_0, Q4_1, Q5_0, Q5_1: [d f16][m f16]?[fifth bits u32]?[16 bytes: k | k + 16
// << 4].
template <bool kHasMin, bool kFifth>
bool pack_group32(const uint8_t* const* rows, size_t k, uint8_t* panel) {
  constexpr size_t kBlock = 2 + (kHasMin ? 2 : 0) + (kFifth ? 4 : 0) + 16;
  constexpr size_t kCodes = kFifth ? 320 : 256;
  constexpr size_t kUnit = kCodes + (kHasMin ? 64 : 32);
  // A padding row needs codes that decode to zero: with a zero scale (and minimum) any code does.
  bool finite = true;
  for (size_t g = 0; g < k / kGroup; ++g, panel += kUnit) {
    if (kFifth) std::memset(panel + 256, 0, 64);
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t* block = rows[lane] != nullptr ? rows[lane] + g * kBlock : kZeros;
      std::memcpy(panel + kCodes + 2 * lane, block, 2);
      finite = finite && finite_half(block);
      if (kHasMin) {
        std::memcpy(panel + kCodes + 32 + 2 * lane, block + 2, 2);
        finite = finite && finite_half(block + 2);
      }
      if (kFifth) store_fifth_bits(load32(block + (kHasMin ? 4 : 2)), lane, panel + 256);
      uint32_t quads[8];
      for (size_t j = 0; j < 4; ++j) {
        const uint32_t word = load32(block + kBlock - 16 + 4 * j);
        quads[j] = word & kLowNibbles;
        quads[j + 4] = word >> 4 & kLowNibbles;
      }
      store_nibbles(quads, lane, panel);
    }
  }
  return finite;
}

bool pack_q8(const uint8_t* const* rows, size_t k, uint8_t* panel) {
  bool finite = true;
  for (size_t g = 0; g < k / kGroup; ++g, panel += 544) {
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t* block = rows[lane] != nullptr ? rows[lane] + g * 34 : kZeros;
      std::memcpy(panel + 512 + 2 * lane, block, 2);
      finite = finite && finite_half(block);
      for (size_t quad = 0; quad < 8; ++quad) {
        store32(panel + quad * 64 + lane * 4, load32(block + 2 + 4 * quad) ^ 0x80808080u);
      }
    }
  }
  return finite;
}

// The 6-bit scale and minimum of group g of a Q4_K or Q5_K block: 12 bytes, the first four of each
// whole, the last four split (low nibbles in bytes 8..11, the top two bits atop bytes 0..7).
void k_scale(const uint8_t* packed, size_t g, uint8_t& scale, uint8_t& minimum) {
  if (g < 4) {
    scale = packed[g] & 63;
    minimum = packed[g + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((packed[g + 4] & 15) | packed[g - 4] >> 6 << 4);
    minimum = static_cast<uint8_t>(packed[g + 4] >> 4 | packed[g] >> 6 << 4);
  }
}

// Q4_K: [d][dmin][scales 12][codes 128]; Q5_K has [fifth bits 32] before the codes: bit g of byte
// k.
template <bool kFifth>
bool pack_k45(const uint8_t* const* rows, size_t k, uint8_t* panel) {
  constexpr size_t kBlock = kFifth ? 176 : 144;
  constexpr size_t kGroupBytes = kFifth ? kQ5KGroupBytes : kQ4KGroupBytes;
  bool finite = true;
  for (size_t s = 0; s < k / kSuperGroup; ++s, panel += kQ4KCodes + 8 * kGroupBytes) {
    if (kFifth) std::memset(panel + kQ5KCodes, 0, 8 * kGroupBytes);
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t* block = rows[lane] != nullptr ? rows[lane] + s * kBlock : kZeros;
      std::memcpy(panel + 2 * lane, block, 2);
      std::memcpy(panel + 32 + 2 * lane, block + 2, 2);
      finite = finite && finite_half(block) && finite_half(block + 2);
      for (size_t g = 0; g < 8; ++g) {
        const size_t at = g * kPanelRows + lane;
        k_scale(block + 4, g, panel[kQ4KScales + at], panel[kQ4KMins + at]);
        uint8_t* codes = panel + kQ4KCodes + g * kGroupBytes;
        uint32_t quads[8];
        uint32_t fifth = 0;
        for (size_t quad = 0; quad < 8; ++quad) {
          const uint32_t word = load32(block + kBlock - 128 + g / 2 * 32 + 4 * quad);
          quads[quad] = word >> (g % 2 * 4) & kLowNibbles;
          if (kFifth) {
            const uint32_t bits = load32(block + 16 + 4 * quad) >> g & 0x01010101u;
            fifth |= ((bits | bits >> 7 | bits >> 14 | bits >> 21) & 15u) << 4 * quad;
          }
        }
        store_nibbles(quads, lane, codes);
        if (kFifth) store_fifth_bits(fifth, lane, codes + 256);
      }
    }
  }
  return finite;
}

// Q6_K: [low nibbles 128][high pairs 64][scales i8 16][d]. Group g = 4 n + t of 32 takes nibble t /
// 2 of bytes 64 n + 32 (t % 2) .. and bits 2 t of the high bytes 32 n ...
bool pack_q6k(const uint8_t* const* rows, size_t k, uint8_t* panel) {
  constexpr size_t kBlock = 210;
  bool finite = true;
  for (size_t s = 0; s < k / kSuperGroup; ++s, panel += kQ6KCodes + 8 * kQ6KGroupBytes) {
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t* block = rows[lane] != nullptr ? rows[lane] + s * kBlock : kZeros;
      std::memcpy(panel + 2 * lane, block + 208, 2);
      finite = finite && finite_half(block + 208);
      for (size_t i = 0; i < 16; ++i) panel[kQ6KScales + i * kPanelRows + lane] = block[192 + i];
      for (size_t g = 0; g < 8; ++g) {
        const size_t n = g / 4;
        const size_t t = g % 4;
        uint8_t* codes = panel + kQ6KCodes + g * kQ6KGroupBytes;
        uint32_t quads[8];
        uint32_t high[2] = {0, 0};
        for (size_t quad = 0; quad < 8; ++quad) {
          const uint32_t low = load32(block + 64 * n + 32 * (t % 2) + 4 * quad);
          quads[quad] = low >> (t / 2 * 4) & kLowNibbles;
          const uint32_t pair = load32(block + 128 + 32 * n + 4 * quad) >> 2 * t & 0x03030303u;
          high[quad / 4] |= pair << 2 * (quad % 4);
        }
        store_nibbles(quads, lane, codes);
        store32(codes + 256 + lane * 4, high[0]);
        store32(codes + 320 + lane * 4, high[1]);
      }
    }
  }
  return finite;
}

// 16-bit floats; pairs of k lie together (kBF16) or each k alone (kF16).
bool pack_half_width(const uint8_t* const* rows, size_t k, bool paired, unsigned exponent_mask,
                     uint8_t* panel) {
  bool finite = true;
  if (paired && k % 2 == 1) std::memset(panel + k / 2 * 64, 0, 64);
  for (size_t i = 0; i < k; ++i) {
    for (size_t lane = 0; lane < kPanelRows; ++lane) {
      const uint8_t* source = rows[lane] != nullptr ? rows[lane] + 2 * i : kZeros;
      const size_t at = paired ? i / 2 * 64 + lane * 4 + i % 2 * 2 : i * 32 + lane * 2;
      std::memcpy(panel + at, source, 2);
      const unsigned bits = static_cast<unsigned>(source[0]) | static_cast<unsigned>(source[1])
                                                                   << 8;
      finite = finite && (bits & exponent_mask) != exponent_mask;
    }
  }
  return finite;
}

bool pack_transcoded(DType type, const uint8_t* const* rows, size_t k, uint8_t* panel) {
  const DType resident = resident_type(type);
  const size_t bytes = row_bytes(resident, k);
  std::vector<uint8_t> memory(bytes * kPanelRows);
  const uint8_t* transcoded[kPanelRows] = {};
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    if (rows[lane] == nullptr) continue;
    transcode_row(type, rows[lane], memory.data() + lane * bytes, k);
    transcoded[lane] = memory.data() + lane * bytes;
  }
  return pack_panel(resident, transcoded, k, panel);
}

}  // namespace

PanelFormat panel_format_of(DType type) {
  switch (type) {
    case DType::kF32:
      return PanelFormat::kF32;
    case DType::kF16:
      return PanelFormat::kF16;
    case DType::kBF16:
      return PanelFormat::kBF16;
    case DType::kQ8_0:
      return PanelFormat::kQ8;
    case DType::kQ4_0:
      return PanelFormat::kQ4;
    case DType::kQ4_1:
      return PanelFormat::kQ4M;
    case DType::kQ5_0:
      return PanelFormat::kQ5;
    case DType::kQ5_1:
      return PanelFormat::kQ5M;
    case DType::kQ4_K:
      return PanelFormat::kQ4K;
    case DType::kQ5_K:
      return PanelFormat::kQ5K;
    case DType::kQ6_K:
      return PanelFormat::kQ6K;
    default:
      return panel_format_of(resident_type(type));
  }
}

bool pack_panel(DType type, const uint8_t* const* rows, size_t k, uint8_t* panel) {
  switch (type) {
    case DType::kF32:
      return pack_panel_f32(type, rows, k, panel);
    case DType::kF16:
      return pack_half_width(rows, k, false, 0x7c00, panel);
    case DType::kBF16:
      return pack_half_width(rows, k, true, 0x7f80, panel);
    case DType::kQ8_0:
      return pack_q8(rows, k, panel);
    case DType::kQ4_0:
      return pack_group32<false, false>(rows, k, panel);
    case DType::kQ4_1:
      return pack_group32<true, false>(rows, k, panel);
    case DType::kQ5_0:
      return pack_group32<false, true>(rows, k, panel);
    case DType::kQ5_1:
      return pack_group32<true, true>(rows, k, panel);
    case DType::kQ4_K:
      return pack_k45<false>(rows, k, panel);
    case DType::kQ5_K:
      return pack_k45<true>(rows, k, panel);
    case DType::kQ6_K:
      return pack_q6k(rows, k, panel);
    default:
      return pack_transcoded(type, rows, k, panel);
  }
}

bool pack_panel_f32(DType type, const uint8_t* const* rows, size_t k, uint8_t* panel) {
  std::vector<float> row(k);
  auto* out = reinterpret_cast<float*>(panel);
  bool finite = true;
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    if (rows[lane] == nullptr) {
      for (size_t i = 0; i < k; ++i) out[i * kPanelRows + lane] = 0.0f;
      continue;
    }
    dequantize_row(type, rows[lane], row.data(), k);
    for (size_t i = 0; i < k; ++i) {
      out[i * kPanelRows + lane] = row[i];
      finite = finite && std::isfinite(row[i]);
    }
  }
  return finite;
}

}  // namespace kvikk
