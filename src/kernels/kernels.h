#pragma once
// The table of compute kernels: one function pointer an operation, filled once at start for the
// machine's instruction set and passed down by reference. An entry works on rows, tiles or pages,
// never on single elements. The scalar version is the reference for all others.
//
// Row invariance: what an entry computes for one row depends on that row alone, bit for bit; not on
// how many rows a call holds, which rows are beside it or which thread runs it. So every matmul of
// a format (one row, few rows, prefill tile) performs, for each output, exactly this sequence over
// groups g:
//     dot  = sum over the group of code * activation code                      (exact, int32)
//     f    = fma(float(dot - zero_point * sum of activation codes), s * xs, f)
//     f    = fma(m, weighted_sum, f)                                            (formats with m)
// with s and m of the group rounded to float32 first (kQ4K: s = d * sc, m = -(dmin * mn)); kQ6K has
// one dot per 16 k, low half first, each with its own s = d * sc. Float formats: per group of 32 k
// t = 0; t = fma(w, x, t) in order of k; then f = f + t. Levels may differ from each other in the
// float part only by using or not using fused multiply-add.

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "kernels/panels.h"

namespace kvikk {

inline constexpr size_t kRowBlock = 16;    // activation rows that lie interleaved
inline constexpr size_t kPageTokens = 64;  // tokens of a KV page
// A group of activations whose largest magnitude is below this counts as zero: 127 / largest would
// overflow a few steps further down.
inline constexpr float kQuantizeSmallest = 1e-30f;

// Activations as int8, one scale per row and group of 32. Block b holds rows 16 b .. 16 b + R - 1
// with R = min(16, rows - 16 b), interleaved by group, so that a tile reads one stream:
struct QuantizedRows {
  size_t rows = 0;
  size_t groups = 0;        // K / 32
  int8_t* codes = nullptr;  // block b at 16 b * groups * 32:  [groups][R][32], in [-127, 127]
  float* scales = nullptr;  // block b at 16 b * groups:       [groups][R]
  int32_t* sums = nullptr;  // block b at 16 b * groups * 2:   [groups][R][2], codes of each 16 k
  float* weighted_sums =
      nullptr;  // block b at 16 b * groups:       [groups][R], scale * float(sum of 32)
};

struct MatmulArgs {
  const uint8_t* panels = nullptr;  // panel p at p * panel_bytes
  size_t panel_bytes = 0;
  size_t panel_begin = 0;  // panels [panel_begin, panel_end) are computed
  size_t panel_end = 0;
  size_t k = 0;              // inputs
  size_t rows = 0;           // activation rows, from row 0
  QuantizedRows quantized;   // quantized formats read this ...
  const float* x = nullptr;  // ... float formats this: [rows, x_stride]
  size_t x_stride = 0;
  float* y = nullptr;  // [rows, y_stride]: y[row][16 p + lane] is written
  size_t y_stride = 0;
  uint8_t* scratch = nullptr;  // of this thread, 64-byte aligned, matmul_scratch_bytes() bytes
};

// Enough for any k: the kernels unpack a few panels, a bounded chunk of k at a time.
inline constexpr size_t matmul_scratch_bytes(size_t /*k*/ = 0) { return 64 * 1024; }

enum class RopeStyle : uint8_t {
  kHalves,  // rotates dimension i with i + rotary / 2 (Hugging Face order)
  kPairs,   // rotates 2 i with 2 i + 1 (GGUF architecture "llama")
};

enum class KvFormat : uint8_t { kBF16, kF32 };

// A page holds 64 tokens of one KV head: keys, then values. The dims of either are a multiple of
// 16. A page whose values are the first dims of its keys (a latent shared by all heads) ends after
// the keys.
// kBF16 keys   [4 blocks of 16 tokens][key_dim / 2][16 tokens][2 dims]
// kBF16 values [32 token pairs][value_dim / 16][16 dims][2 tokens]
// kF32 keys    [4 blocks of 16 tokens][key_dim][16 tokens]      kF32 values [64 tokens][value_dim]
inline constexpr size_t kv_part_bytes(KvFormat format, size_t dim) {
  return kPageTokens * dim * (format == KvFormat::kF32 ? 4 : 2);
}

// The maximum of a row that sees nothing.
inline constexpr float kNothingVisible = -1e30f;

// Rows of queries of one KV head, the consecutive pages that they meet, and what comes out. Every
// row sees tokens whose absolute position is in [visible_begin, visible_end); pages are always
// computed whole (64 tokens), invisible ones get weight 0. All rows of a call have visible_end in
// the same page, the last one given (so that no row ever adds a page that it does not see after one
// that it does). The result is unnormalised: out = acc / sum. Order of the reductions: scores over
// dims ascending; page by page: the page's maximum joins the running one, the sums are rescaled,
// the weights exp(score - max) are summed in a fixed tree, values are added in order of tokens.
struct AttendRows {
  const uint8_t* const* pages = nullptr;  // [page_count], page i starts at position first + 64 i
  size_t page_count = 0;
  size_t first_position = 0;  // a multiple of 64
  float softcap = 0.0f;       // scores become softcap * tanh(score / softcap); 0: they stay
  size_t rows = 0;
  const uint32_t* visible_begin = nullptr;  // [rows]
  const uint32_t* visible_end = nullptr;    // [rows]
  float* max = nullptr;                     // out [rows]; kNothingVisible where that is so
  float* sum = nullptr;                     // out [rows]
  float* acc = nullptr;                     // out [rows, dims of a value]
  uint8_t* scratch = nullptr;  // of this thread, 64-byte aligned, attend_scratch_bytes()
};

struct AttendArgs : AttendRows {
  size_t key_dim = 0;  // multiples of 16
  size_t value_dim = 0;
  bool value_in_key = false;       // values are the first value_dim dims of the keys
  const float* queries = nullptr;  // [rows, key_dim], multiplied by the softmax scale
};

// dim: the larger of key_dim and value_dim. The last term holds a page of values taken out of keys.
inline constexpr size_t attend_scratch_bytes(size_t rows, size_t dim) {
  return (rows + 15) / 16 * 16 * (dim * 8 + kPageTokens * 8 + 64) + 16384 +
         kPageTokens * dim * sizeof(float);
}

struct CodedLayout;  // coded_page.h
struct CodedAttendArgs;
struct SearchScanArgs;  // search.h
struct SearchSelectArgs;
struct SearchProductArgs;
struct SearchCodesArgs;

struct Kernels {
  const char* level = "";

  // Quantizes row `row` of `x` [out.groups * 32] into `out`. A group of zeros gets scale 0;
  // a group with a NaN or
  // an infinity gets the scale NaN, so that the fault reaches every output.
  void (*quantize_row)(const float* x, size_t row, const QuantizedRows& out) = nullptr;

  void (*matmul[kPanelFormatCount])(const MatmulArgs& args) = {};

  // out = x / sqrt(mean(x^2) + epsilon) * weight, n elements. out may be x.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float epsilon,
                   float* out) = nullptr;
  // x += y, n elements.
  void (*add)(float* x, const float* y, size_t n) = nullptr;
  // out = silu(gate) * up; out = gelu_tanh(gate) * up. out may be gate.
  void (*silu_multiply)(const float* gate, const float* up, size_t n, float* out) = nullptr;
  void (*gelu_multiply)(const float* gate, const float* up, size_t n, float* out) = nullptr;
  // Rotates the first `rotary` dimensions of one head in place. cosines, sines: [rotary / 2].
  void (*rope[2])(float* head, const float* cosines, const float* sines, size_t rotary) = {};

  // Writes the key or value [dim] of the token in `slot` (0..63) of a page's part.
  void (*store_key[2])(uint8_t* keys, size_t slot, const float* key, size_t dim) = {};
  void (*store_value[2])(uint8_t* values, size_t slot, const float* value, size_t dim) = {};
  void (*attend[2])(const AttendArgs& args) = {};  // index: KvFormat

  // A coded part of a page (coded_page.h) to a part of a kF32 page. Keys: out_dims >= the layout's
  // dims; of each block of 16 tokens only the layout's dims are written.
  void (*decode_keys)(const uint8_t* part, const CodedLayout& layout, size_t out_dims,
                      float* out) = nullptr;
  void (*decode_values)(const uint8_t* part, const CodedLayout& layout, float* out) = nullptr;
  // Null where a level has none that is faster than decode_* and attend: the only such entry.
  void (*attend_coded)(const CodedAttendArgs& args) = nullptr;

  // Vector search: what they compute is defined in search.h, to the bit.
  void (*search_scan)(const SearchScanArgs& args) = nullptr;
  void (*search_select)(const SearchSelectArgs& args) = nullptr;
  void (*search_product)(const SearchProductArgs& args) = nullptr;
  void (*search_codes)(const SearchCodesArgs& args) = nullptr;

  // The machine's limits, for benchmarks: `iterations` times as many independent multiply-adds as
  // the units can hold, on registers alone. Return the operations done, two for a multiply-add.
  uint64_t (*peak_int8)(uint64_t iterations) = nullptr;  // 8-bit products, 32-bit sums
  uint64_t (*peak_bf16)(uint64_t iterations) = nullptr;  // bfloat16 products, float32 sums
};

// The kernels for `features`: each level overwrites what it improves, no entry is ever null.
Kernels make_kernels(const CpuFeatures& features);

namespace scalar {
void fill(Kernels& kernels);
}
#if defined(__x86_64__)
namespace avx2 {
void fill(Kernels& kernels);
}
namespace avx512 {
void fill(Kernels& kernels);
}
namespace amx {
void fill(Kernels& kernels);
}
#endif

}  // namespace kvikk
