// AVX2 products of quantized panels. Without VNNI a dot of bytes goes through 16-bit sums
// (vpmaddubsw), which must not overflow: 4-bit codes allow all 8 quads of a group in one sum
// (8 * 2 * 15 * 127 = 30480), 5-bit ones 4, 6-bit ones 2. For 8 bits the sign moves from the weight
// to the activation and each product is widened at once (2 * 128 * 127 = 32512). So the integers
// are exact here too, and the float part is in the order that kernels.h fixes.

#include "kernels/avx2_panels.h"
#include "kernels/kernels.h"

namespace kvikk::avx2 {

// In avx2_matmul_float.cpp.
void fill_matmul_float(Kernels& kernels);

namespace {

constexpr size_t kUnpackRowsMin = 9;  // from here on unpacking once pays
constexpr size_t kAheadBytes = 1024;
constexpr size_t kChunk = 32;  // groups that are unpacked at once

// Consecutive rows of one block, from some group on. Of group g, row r: codes at
// (g * stride + r) * 32.
struct Rows {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  const float* weighted_sums;
  size_t stride;  // rows of the block
};

Rows rows_at(const QuantizedRows& x, size_t row, size_t group) {
  const size_t block = row / kRowBlock * kRowBlock;
  const size_t stride = x.rows - block < kRowBlock ? x.rows - block : kRowBlock;
  const size_t at = block * x.groups + group * stride + (row - block);
  return {x.codes + at * kGroupK, x.scales + at, x.sums + 2 * at, x.weighted_sums + at, stride};
}

typedef int32_t Quad __attribute__((may_alias));

// These are in assembly because g++ 12 loads the activations of all rows first and spills them.

// sums (16 of 16 bits) += codes (unsigned) * the four activations at x (signed), in pairs.
inline void add_quad(__m256i& sums, __m256i codes, const int8_t* x) {
  __m256i t;
  asm("vpbroadcastd %2, %1\n\t"
      "vpmaddubsw %1, %3, %1\n\t"
      "vpaddw %1, %0, %0"
      : "+x"(sums), "=&x"(t)
      : "m"(*reinterpret_cast<const Quad*>(x)), "x"(codes));
}

// dots (8 of 32 bits) += weights (signed) * the four activations at x; magnitudes = |weights|.
inline void add_signed_quad(__m256i& dots, __m256i weights, __m256i magnitudes, const int8_t* x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i t;
  asm("vpbroadcastd %2, %1\n\t"
      "vpsignb %3, %1, %1\n\t"
      "vpmaddubsw %1, %4, %1\n\t"
      "vpmaddwd %5, %1, %1\n\t"
      "vpaddd %1, %0, %0"
      : "+x"(dots), "=&x"(t)
      : "m"(*reinterpret_cast<const Quad*>(x)), "x"(weights), "x"(magnitudes), "x"(ones));
}

inline __m256i widen(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

// Where codes and scales come from: the panel itself ...
template <class F>
struct Packed : F {
  static constexpr size_t kStep = F::kUnitBytes;  // bytes of kUnitGroups groups
};

// ... or scratch: unit = one group, [8 quads][64] | scales [parts][16] | minima [16].
template <class F>
struct Bytes : F {
  static constexpr size_t kUnitGroups = 1;
  static constexpr size_t kStep = kQuads * kLine + (F::kParts + 1) * kLanes * 4;

  static void pair(const uint8_t* unit, size_t, int half, size_t j, __m256i& even, __m256i& odd) {
    even = load_bytes(unit + 2 * j * kLine + static_cast<size_t>(half) * kHalfLine);
    odd = load_bytes(unit + (2 * j + 1) * kLine + static_cast<size_t>(half) * kHalfLine);
  }
  static const float* floats(const uint8_t* unit, int part, int half) {
    return reinterpret_cast<const float*>(unit + kQuads * kLine) + part * 16 + half * 8;
  }
  static_assert(kChunk * kStep <= matmul_scratch_bytes());

  static __m256 scale(const uint8_t* unit, size_t, int half, int part) {
    return _mm256_load_ps(floats(unit, part, half));
  }
  static __m256 minimum(const uint8_t* unit, size_t, int half) {
    return _mm256_load_ps(floats(unit, F::kParts, half));
  }
};

// dots[r] of `half` over pairs of quads [first, last), for M rows; zero point not yet subtracted
// unless the codes have 8 bits.
template <class S, int M>
inline void dot_rows(const uint8_t* unit, size_t i, int half, const int8_t* x, size_t first,
                     size_t last, __m256i (&dots)[M]) {
  constexpr size_t kPairs = S::kBits == 4 ? 4 : S::kBits == 5 ? 2 : 1;  // of one 16-bit sum
#pragma GCC unroll 4
  for (int r = 0; r < M; ++r) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (size_t begin = first; begin < last; begin += kPairs) {
    __m256i sums[M];
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (size_t j = begin; j < begin + kPairs; ++j) {
      __m256i even;
      __m256i odd;
      S::pair(unit, i, half, j, even, odd);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        const int8_t* row = x + static_cast<size_t>(r) * kGroupK + 8 * j;
        if constexpr (S::kBits == 8) {
          const __m256i sign = _mm256_set1_epi8(-128);
          const __m256i w0 = _mm256_xor_si256(even, sign);
          const __m256i w1 = _mm256_xor_si256(odd, sign);
          add_signed_quad(dots[r], w0, _mm256_abs_epi8(w0), row);
          add_signed_quad(dots[r], w1, _mm256_abs_epi8(w1), row + 4);
        } else {
          add_quad(sums[r], even, row);
          add_quad(sums[r], odd, row + 4);
        }
      }
    }
    if (S::kBits != 8) {
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) dots[r] = _mm256_add_epi32(dots[r], widen(sums[r]));
    }
  }
}

// One group of one panel and M rows, added to f [M][16].
template <class S, int M>
inline void add_group(const uint8_t* unit, size_t i, const Rows& x, size_t g, float* f) {
  const int8_t* codes = x.codes + g * x.stride * kGroupK;
  const size_t at = g * x.stride;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256 value[M];
#pragma GCC unroll 2
    for (int part = 0; part < S::kParts; ++part) {
      constexpr size_t kPartPairs = kQuads / 2 / S::kParts;
      const size_t first = static_cast<size_t>(part) * kPartPairs;
      __m256i dots[M];
      dot_rows<S, M>(unit, i, half, codes, first, first + kPartPairs, dots);
      const __m256 scale = S::scale(unit, i, half, part);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        if (part == 0) value[r] = _mm256_load_ps(f + r * 16 + half * 8);
        const size_t row = at + static_cast<size_t>(r);
        if (S::kBits != 8 && S::kZero != 0) {
          const int32_t* sums = x.sums + 2 * row;
          const int32_t sum = S::kParts == 2 ? sums[part] : sums[0] + sums[1];
          dots[r] = _mm256_sub_epi32(dots[r], _mm256_set1_epi32(S::kZero * sum));
        }
        value[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]),
                                   _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[row])), value[r]);
      }
    }
    if (S::kHasMin) {
      const __m256 minimum = S::minimum(unit, i, half);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        const __m256 sum = _mm256_set1_ps(x.weighted_sums[at + static_cast<size_t>(r)]);
        value[r] = _mm256_fmadd_ps(minimum, sum, value[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) _mm256_store_ps(f + r * 16 + half * 8, value[r]);
    asm volatile("" ::: "memory");  // or the compiler mixes the halves and spills
  }
}

// P panels (as many streams of loads) times M rows. y holds the sums of the groups before these,
// unless these are the first.
template <class S, int P, int M>
void kernel(const uint8_t* panels, size_t panel_bytes, size_t groups, const Rows& x, bool first,
            float* y, size_t y_stride) {
  constexpr size_t kGroupBytes = S::kStep / S::kUnitGroups;
  alignas(32) float f[P][M][kLanes] = {};
  for (size_t p = 0; p < P && !first; ++p) {
    for (size_t r = 0; r < M; ++r) {
      __builtin_memcpy(f[p][r], y + r * y_stride + p * kLanes, sizeof f[p][r]);
    }
  }
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* unit = panels + g / S::kUnitGroups * S::kStep;
    // Past the end of these panels lies, for stream p, the panel P further on.
    size_t ahead = g * kGroupBytes + kAheadBytes;
    if (ahead >= panel_bytes) ahead += (P - 1) * panel_bytes;
    for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 16
      for (size_t line = 0; line < kGroupBytes; line += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(panels + p * panel_bytes + ahead + line),
                     _MM_HINT_T0);
      }
      add_group<S, M>(unit + p * panel_bytes, g % S::kUnitGroups, x, g, f[p][0]);
    }
  }
  for (size_t p = 0; p < P; ++p) {
    for (size_t r = 0; r < M; ++r) {
      __builtin_memcpy(y + r * y_stride + p * kLanes, f[p][r], sizeof f[p][r]);
    }
  }
}

// Groups [begin, begin + count) of k.
struct GroupRange {
  size_t begin;
  size_t count;
};

// All rows over P panels, given from the first of `groups` on. Rows of a block are neighbours, so M
// rows at a time never cross its end.
template <class S, int P>
void multiply_panels(const MatmulArgs& args, const uint8_t* panels, size_t panel_bytes,
                     const GroupRange& groups, float* y) {
  for (size_t row = 0; row < args.rows;) {
    const Rows x = rows_at(args.quantized, row, groups.begin);
    const size_t in_block = kRowBlock - row % kRowBlock;
    const size_t left = args.rows - row < in_block ? args.rows - row : in_block;
    const size_t m = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const auto run = m == 4 ? kernel<S, P, 4> : m == 2 ? kernel<S, P, 2> : kernel<S, P, 1>;
    run(panels, panel_bytes, groups.count, x, groups.begin == 0, y + row * args.y_stride,
        args.y_stride);
    row += m;
  }
}

template <class F>
void unpack(const uint8_t* panel, const GroupRange& groups, uint8_t* out) {
  for (size_t n = 0; n < groups.count; ++n, out += Bytes<F>::kStep) {
    const size_t g = groups.begin + n;
    const uint8_t* unit = panel + g / F::kUnitGroups * F::kUnitBytes;
    const size_t i = g % F::kUnitGroups;
    float* floats = reinterpret_cast<float*>(out + kQuads * kLine);
    for (int half = 0; half < 2; ++half) {
      uint8_t* codes = out + half * 32;
#pragma GCC unroll 4
      for (size_t j = 0; j < kQuads / 2; ++j) {
        __m256i even;
        __m256i odd;
        F::pair(unit, i, half, j, even, odd);
        _mm256_store_si256(reinterpret_cast<__m256i*>(codes + 2 * j * kLine), even);
        _mm256_store_si256(reinterpret_cast<__m256i*>(codes + (2 * j + 1) * kLine), odd);
      }
      for (int part = 0; part < F::kParts; ++part) {
        _mm256_store_ps(floats + part * 16 + half * 8, F::scale(unit, i, half, part));
      }
      _mm256_store_ps(floats + F::kParts * 16 + half * 8, F::minimum(unit, i, half));
    }
  }
}

template <class F>
void quantized_matmul(const MatmulArgs& args) {
  const auto panel_at = [&](size_t i) { return args.panels + i * args.panel_bytes; };
  const size_t groups = args.k / kGroupK;
  if (args.rows >= kUnpackRowsMin) {
    // Chunk by chunk of k: an unpacked chunk stays in the L1 cache over the rows, the activations
    // of a chunk in the L2 cache over the panels.
    for (GroupRange chunk = {0, 0}; chunk.begin < groups; chunk.begin += chunk.count) {
      const size_t left = groups - chunk.begin;
      chunk.count = left < kChunk ? left : kChunk;
      for (size_t p = args.panel_begin; p < args.panel_end; ++p) {
        unpack<F>(panel_at(p), chunk, args.scratch);
        multiply_panels<Bytes<F>, 1>(args, args.scratch, chunk.count * Bytes<F>::kStep, chunk,
                                     args.y + p * kLanes);
      }
    }
    return;
  }
  const GroupRange all = {0, groups};
  size_t p = args.panel_begin;
  for (; p + 4 <= args.panel_end; p += 4) {
    multiply_panels<Packed<F>, 4>(args, panel_at(p), args.panel_bytes, all, args.y + p * kLanes);
  }
  for (; p < args.panel_end; ++p) {
    multiply_panels<Packed<F>, 1>(args, panel_at(p), args.panel_bytes, all, args.y + p * kLanes);
  }
}

}  // namespace

void fill_matmul(Kernels& kernels) {
  const auto set = [&](PanelFormat format, void (*entry)(const MatmulArgs&)) {
    kernels.matmul[static_cast<size_t>(format)] = entry;
  };
  set(PanelFormat::kQ8, quantized_matmul<Q8>);
  set(PanelFormat::kQ4, quantized_matmul<Q4>);
  set(PanelFormat::kQ4M, quantized_matmul<Q4M>);
  set(PanelFormat::kQ5, quantized_matmul<Q5>);
  set(PanelFormat::kQ5M, quantized_matmul<Q5M>);
  set(PanelFormat::kQ4K, quantized_matmul<Q4K>);
  set(PanelFormat::kQ5K, quantized_matmul<Q5K>);
  set(PanelFormat::kQ6K, quantized_matmul<Q6K>);
  fill_matmul_float(kernels);
}

}  // namespace kvikk::avx2
