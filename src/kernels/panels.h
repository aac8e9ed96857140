#pragma once
// How weights lie in memory for the kernels. A matrix [N outputs, K inputs] is cut into panels of
// 16 rows (the lanes of a 512-bit register of 32-bit sums); N is padded with zero rows. A panel is
// read once, front to back, by every kernel: one activation row, a few, or a prefill tile.
//
// Quantized panels keep the file's integers and scales as they are (repacking is lossless). K is
// cut into groups of 32, the span of one activation scale. The codes of a group are "quads": quad j
// holds k = 4 j .. 4 j + 3 of all 16 rows as [16 rows][4 k], one 64-byte line when unpacked to
// bytes, which is what vpdpbusd and the B operand of AMX read. Codes are unsigned; a symmetric
// format subtracts its zero point through the sum of the activations.
//
// format  group bytes, in this order                                             value of a weight
// kF32    per k: 16 floats                                                       w
// kF16    per k: 16 halves                                                       w
// kBF16   per pair of k: [16 rows][2 k]                                          w
// kQ8     8 quads x 64 B | scales f16[16]                                        s (q - 128)
// kQ4     4 x 64 B, nibbles: low = quad 2 j, high = quad 2 j + 1 | s f16[16]     s (q - 8)
// kQ4M    as kQ4 | s f16[16] | m f16[16]                                         s q + m
// kQ5     as kQ4's nibbles | fifth bits: 8 quads x u64, bit i = byte i | s       s (q - 16)
// kQ5M    as kQ5 | m f16[16]                                                     s q + m
// super-groups of 256 = 8 groups (i = 0..7):
// kQ4K    d f16[16] | dmin f16[16] | sc u8[8][16] | mn u8[8][16] | 8 x nibbles   d sc q - dmin mn
// kQ5K    same header | 8 x (nibbles | fifth bits)                               d sc q - dmin mn
// kQ6K    d f16[16] | sc i8[16 of 16 k each][16] | 8 x (nibbles | high bits)     d sc (q - 32)
//         high bits of a group: 2 x 64 B; line h, bits 2 p .. 2 p + 1 of a byte = quad 4 h + p

#include <cstddef>
#include <cstdint>

namespace kvikk {

inline constexpr size_t kPanelRows = 16;
inline constexpr size_t kGroup = 32;        // weights and activations per scale
inline constexpr size_t kSuperGroup = 256;  // of the K formats

enum class PanelFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8,
  kQ4,
  kQ4M,
  kQ5,
  kQ5M,
  kQ4K,
  kQ5K,
  kQ6K,
  kCount,
};

inline constexpr size_t kPanelFormatCount = static_cast<size_t>(PanelFormat::kCount);

struct PanelLayout {
  size_t unit_elements;  // k that one unit of bytes covers
  size_t unit_bytes;     // bytes of 16 rows x unit_elements
  bool quantized;        // reads QuantizedRows; else float rows
};

inline constexpr PanelLayout kPanelLayouts[kPanelFormatCount] = {
    {1, 64, false},    {1, 32, false},    {2, 64, false},    {32, 544, true},
    {32, 288, true},   {32, 320, true},   {32, 352, true},   {32, 384, true},
    {256, 2368, true}, {256, 2880, true}, {256, 3360, true},
};

// Offsets inside a unit of the K formats.
inline constexpr size_t kQ4KScales = 64, kQ4KMins = 192, kQ4KCodes = 320, kQ4KGroupBytes = 256;
inline constexpr size_t kQ5KScales = 64, kQ5KMins = 192, kQ5KCodes = 320, kQ5KGroupBytes = 320;
inline constexpr size_t kQ6KScales = 32, kQ6KCodes = 288, kQ6KGroupBytes = 384;

}  // namespace kvikk
