// Coded pages to floats: every level against a decoder of its own, written from the format's words.

#include "kernels/coded_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/float16.h"
#include "kernels/kernel_levels.h"

namespace kvikk {
namespace {

constexpr CodedSegment kSegments[][kCodedSegmentsMax] = {
    {{8, 64}},
    {{4, 64}},
    {{3, 64}},
    {{2, 64}},
    {{4, 16}},
    {{4, 80}},
    {{3, 48}},
    {{2, 112}},
    {{8, 16}, {4, 32}},
    {{4, 48}, {2, 16}},
    {{8, 16}, {3, 80}, {2, 32}},
    {{4, 32}, {0, 16}, {2, 16}},
};

CodedLayout layout_of(const CodedSegment (&segments)[kCodedSegmentsMax]) {
  CodedLayout layout;
  for (size_t i = 0; i < kCodedSegmentsMax; ++i) layout.segments[i] = segments[i];
  for (size_t bits : {2u, 3u, 4u}) {
    const size_t count = size_t{1} << bits;
    for (size_t i = 0; i < 16; ++i) {
      layout.levels[bits][i] = static_cast<float>(i % count) * 0.37f - 1.1f;
    }
  }
  layout.step = 0.031f;
  return layout;
}

// Bits of the code of (unit, lane), read one by one.
float value_of(const CodedLayout& layout, const CodedSegment& s, const uint8_t* run, size_t units,
               size_t unit, size_t lane) {
  if (s.bits == 0) return 0.0f;
  if (s.bits == 8) {
    return (static_cast<float>(run[64 * unit + lane]) - 128.0f) * layout.step;
  }
  const size_t plane = s.bits == 3 ? 2 : s.bits;
  const size_t in_line = 8 / plane;
  const uint8_t byte = run[unit / in_line * 64 + lane];
  unsigned code = byte >> (unit % in_line * plane) & ((1u << plane) - 1);
  if (s.bits == 3) {
    uint64_t thirds = 0;
    std::memcpy(&thirds, run + (units + 3) / 4 * 64 + unit * 8, sizeof thirds);
    code += 4 * static_cast<unsigned>(thirds >> lane & 1);
  }
  return layout.levels[s.bits][code];
}

std::vector<uint8_t> random_part(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> part(bytes);
  for (uint8_t& b : part) b = static_cast<uint8_t>(random());
  for (size_t t = 0; t < kPageTokens; ++t) {  // scales: finite halves
    const auto half = static_cast<uint16_t>(random() % 0x7c00);
    std::memcpy(&part[bytes - kCodedScaleBytes + 2 * t], &half, sizeof half);
  }
  return part;
}

float scale_of(const std::vector<uint8_t>& part, size_t token) {
  uint16_t half = 0;
  std::memcpy(&half, &part[part.size() - kCodedScaleBytes + 2 * token], sizeof half);
  return half_to_float(half);
}

TEST(CodedPage, KeysAreWhatTheFormatSays) {
  for (const auto& segments : kSegments) {
    const CodedLayout layout = layout_of(segments);
    const size_t dims = coded_dims(layout);
    const size_t out_dims = dims + 16;
    const std::vector<uint8_t> part = random_part(coded_key_bytes(layout), 3);
    for (const Kernels& level : kernel_levels()) {
      std::vector<float> out(kPageTokens * out_dims, 7.0f);
      level.decode_keys(part.data(), layout, out_dims, out.data());
      for (size_t t = 0; t < kPageTokens; ++t) {
        const uint8_t* run = part.data() + t / 16 * coded_key_block_bytes(layout);
        size_t at = 0;
        for (const CodedSegment& s : layout.segments) {
          for (size_t d = 0; d < s.dims; ++d, ++at) {
            const float expected =
                value_of(layout, s, run, s.dims / 4, d / 4, t % 16 * 4 + d % 4) * scale_of(part, t);
            ASSERT_EQ(out[(t / 16 * out_dims + at) * 16 + t % 16], expected)
                << level.level << " token " << t << " dim " << at;
          }
          run += coded_run_bytes(s.bits, s.dims / 4);
        }
        for (; at < out_dims; ++at) {
          ASSERT_EQ(out[(t / 16 * out_dims + at) * 16 + t % 16], 7.0f) << "not its own dims";
        }
      }
    }
  }
}

TEST(CodedPage, ValuesAreWhatTheFormatSays) {
  for (const auto& segments : kSegments) {
    const CodedLayout layout = layout_of(segments);
    const size_t dims = coded_dims(layout);
    const std::vector<uint8_t> part = random_part(coded_value_bytes(layout), 4);
    for (const Kernels& level : kernel_levels()) {
      std::vector<float> out(kPageTokens * dims);
      level.decode_values(part.data(), layout, out.data());
      for (size_t t = 0; t < kPageTokens; ++t) {
        const uint8_t* run = part.data() + t / 4 * coded_value_row_bytes(layout);
        size_t at = 0;
        for (const CodedSegment& s : layout.segments) {
          for (size_t d = 0; d < s.dims; ++d, ++at) {
            const float expected =
                value_of(layout, s, run, s.dims / 16, d / 16, d % 16 * 4 + t % 4) *
                scale_of(part, t);
            ASSERT_EQ(out[t * dims + at], expected) << level.level << " token " << t;
          }
          run += coded_run_bytes(s.bits, s.dims / 16);
        }
      }
    }
  }
}

TEST(CodedPage, BytesAreTheBits) {
  for (size_t bits : {2u, 3u, 4u, 8u}) {
    CodedLayout layout;
    layout.segments[0] = {static_cast<uint32_t>(bits), 128};
    EXPECT_EQ(coded_key_bytes(layout), 64 * (128 * bits / 8 + 2));
    EXPECT_EQ(coded_value_bytes(layout), 64 * (128 * bits / 8 + 2));
  }
}

}  // namespace
}  // namespace kvikk
