// AVX-512 products of panels with float weights. The activations stay float32, so that an
// unquantized model loses nothing; the weights are widened on the way. Per group of 32 k a fresh
// sum t, added to f at the end: the order that kernels.h fixes.

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 complains about the _mm512_undefined_ps() inside of its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/avx512_matmul.h"
#include "kernels/kernels.h"

namespace kvikk::avx512 {

namespace {

constexpr size_t kLanes = 16;
constexpr size_t kGroupK = 32;
constexpr size_t kAheadBytes = 2048;

// A format gives the weights of two neighbouring k (pair) or of the last one (single); `panel` is
// where k lies.

struct F32 {
  static constexpr size_t kBytes = 64;  // of one k

  static void pair(const uint8_t* at, __m512& w0, __m512& w1) {
    w0 = single(at);
    w1 = single(at + kBytes);
  }
  static __m512 single(const uint8_t* at) { return _mm512_loadu_ps(at); }
};

struct F16 {
  static constexpr size_t kBytes = 32;

  static void pair(const uint8_t* at, __m512& w0, __m512& w1) {
    w0 = single(at);
    w1 = single(at + kBytes);
  }
  static __m512 single(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
};

struct BF16 {
  static constexpr size_t kBytes = 32;

  static void pair(const uint8_t* at, __m512& w0, __m512& w1) {
    const __m512i line = _mm512_loadu_si512(at);
    w0 = _mm512_castsi512_ps(_mm512_slli_epi32(line, 16));
    w1 = _mm512_castsi512_ps(_mm512_and_si512(line, _mm512_set1_epi32(-65536)));
  }
  static __m512 single(const uint8_t* at) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(at), 16));
  }
};

// P panels times M rows; x [M, x_stride].
template <class F, size_t P, size_t M>
void kernel(const uint8_t* panels, size_t panel_bytes, size_t k_count, const float* x,
            size_t x_stride, float* y, size_t y_stride) {
  __m512 f[P][M];
#pragma GCC unroll 4
  for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (size_t r = 0; r < M; ++r) f[p][r] = _mm512_setzero_ps();
  }
  for (size_t begin = 0; begin < k_count; begin += kGroupK) {
    const size_t end = k_count - begin < kGroupK ? k_count : begin + kGroupK;
    __m512 t[P][M];
#pragma GCC unroll 4
    for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) t[p][r] = _mm512_setzero_ps();
    }
    size_t k = begin;
    for (; k + 2 <= end; k += 2) {
      __m512 w[2][P];
#pragma GCC unroll 4
      for (size_t p = 0; p < P; ++p) {
        const uint8_t* at = panels + p * panel_bytes + k * F::kBytes;
        size_t ahead = kAheadBytes;  // past the end, the panel P further on
        if (k * F::kBytes + kAheadBytes >= panel_bytes) ahead += (P - 1) * panel_bytes;
#pragma GCC unroll 2
        for (size_t line = 0; line < 2 * F::kBytes; line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(at + ahead + line), _MM_HINT_T0);
        }
        F::pair(at, w[0][p], w[1][p]);
      }
#pragma GCC unroll 2
      for (size_t i = 0; i < 2; ++i) {
#pragma GCC unroll 8
        for (size_t r = 0; r < M; ++r) {
          const __m512 factor = _mm512_set1_ps(x[r * x_stride + k + i]);
#pragma GCC unroll 4
          for (size_t p = 0; p < P; ++p) t[p][r] = _mm512_fmadd_ps(w[i][p], factor, t[p][r]);
        }
      }
    }
    if (k < end) {
#pragma GCC unroll 4
      for (size_t p = 0; p < P; ++p) {
        const __m512 w = F::single(panels + p * panel_bytes + k * F::kBytes);
#pragma GCC unroll 8
        for (size_t r = 0; r < M; ++r) {
          t[p][r] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[r * x_stride + k]), t[p][r]);
        }
      }
    }
#pragma GCC unroll 4
    for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 8
      for (size_t r = 0; r < M; ++r) f[p][r] = _mm512_add_ps(f[p][r], t[p][r]);
    }
  }
#pragma GCC unroll 4
  for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (size_t r = 0; r < M; ++r) _mm512_storeu_ps(y + r * y_stride + p * kLanes, f[p][r]);
  }
}

// All rows over P panels from `panel` on: they come from the cache after the first rows.
template <class F, size_t P>
void panels_matmul(const MatmulArgs& args, size_t panel) {
  const uint8_t* const panels = args.panels + panel * args.panel_bytes;
  size_t row = 0;
  const auto run = [&](auto fn, size_t m) {
    for (; row + m <= args.rows; row += m) {
      fn(panels, args.panel_bytes, args.k, args.x + row * args.x_stride, args.x_stride,
         args.y + row * args.y_stride + panel * kLanes, args.y_stride);
    }
  };
  if (P <= 2) {
    run(kernel<F, (P <= 2 ? P : 1), 8>, 8);
    run(kernel<F, (P <= 2 ? P : 1), 4>, 4);
  }
  run(kernel<F, P, 2>, 2);
  run(kernel<F, P, 1>, 1);
}

template <class F>
void float_matmul(const MatmulArgs& args) {
  size_t p = args.panel_begin;
  if (args.rows <= 3) {
    for (; p + 4 <= args.panel_end; p += 4) panels_matmul<F, 4>(args, p);
  }
  for (; p + 2 <= args.panel_end; p += 2) panels_matmul<F, 2>(args, p);
  if (p < args.panel_end) panels_matmul<F, 1>(args, p);
}

}  // namespace

void matmul_f32(const MatmulArgs& args) { float_matmul<F32>(args); }
void matmul_f16(const MatmulArgs& args) { float_matmul<F16>(args); }
void matmul_bf16(const MatmulArgs& args) { float_matmul<BF16>(args); }

}  // namespace kvikk::avx512
