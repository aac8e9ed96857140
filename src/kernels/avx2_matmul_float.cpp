// AVX2 products of panels with float weights. The activations stay float32, so that an
// unquantized model loses nothing; the weights are widened on the way. Per group of 32 k a fresh
// sum t, added to f at the end: the order that kernels.h fixes.

#include <immintrin.h>

#include "kernels/kernels.h"

namespace kvikk::avx2 {

namespace {

constexpr size_t kLanes = 16;  // of a panel: two registers
constexpr size_t kGroupK = 32;
constexpr size_t kAheadBytes = 1024;

struct Lanes {
  __m256 low, high;
};

// A format gives the weights of two neighbouring k (pair) or of the last one (single); `at` is
// where k lies.

struct F32 {
  static constexpr size_t kBytes = 64;  // of one k

  static void pair(const uint8_t* at, Lanes& w0, Lanes& w1) {
    w0 = single(at);
    w1 = single(at + kBytes);
  }
  static Lanes single(const uint8_t* at) {
    const auto* w = reinterpret_cast<const float*>(at);
    return {_mm256_loadu_ps(w), _mm256_loadu_ps(w + 8)};
  }
};

struct F16 {
  static constexpr size_t kBytes = 32;

  static void pair(const uint8_t* at, Lanes& w0, Lanes& w1) {
    w0 = single(at);
    w1 = single(at + kBytes);
  }
  static Lanes single(const uint8_t* at) {
    const auto* w = reinterpret_cast<const __m128i*>(at);
    return {_mm256_cvtph_ps(_mm_loadu_si128(w)), _mm256_cvtph_ps(_mm_loadu_si128(w + 1))};
  }
};

struct BF16 {
  static constexpr size_t kBytes = 32;

  static void pair(const uint8_t* at, Lanes& w0, Lanes& w1) {
    w0 = single(at);
    const __m256i odd = _mm256_set1_epi32(-65536);
    const auto* w = reinterpret_cast<const __m256i*>(at);
    w1.low = _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(w), odd));
    w1.high = _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(w + 1), odd));
  }
  static Lanes single(const uint8_t* at) {
    const auto* w = reinterpret_cast<const __m256i*>(at);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(w), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(w + 1), 16))};
  }
};

inline void add_product(const Lanes& w, float x, Lanes& t) {
  const __m256 factor = _mm256_set1_ps(x);
  t.low = _mm256_fmadd_ps(w.low, factor, t.low);
  t.high = _mm256_fmadd_ps(w.high, factor, t.high);
}

// P panels times M rows; x [M, x_stride].
template <class F, size_t P, size_t M>
void kernel(const uint8_t* panels, size_t panel_bytes, size_t k_count, const float* x,
            size_t x_stride, float* y, size_t y_stride) {
  alignas(32) float f[P][M][kLanes] = {};
  for (size_t begin = 0; begin < k_count; begin += kGroupK) {
    const size_t end = k_count - begin < kGroupK ? k_count : begin + kGroupK;
    Lanes t[P][M];
#pragma GCC unroll 4
    for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (size_t r = 0; r < M; ++r) t[p][r] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    }
    size_t k = begin;
    for (; k + 2 <= end; k += 2) {
#pragma GCC unroll 4
      for (size_t p = 0; p < P; ++p) {
        const uint8_t* at = panels + p * panel_bytes + k * F::kBytes;
        size_t ahead = kAheadBytes;  // past the end, the panel P further on
        if (k * F::kBytes + kAheadBytes >= panel_bytes) ahead += (P - 1) * panel_bytes;
#pragma GCC unroll 2
        for (size_t line = 0; line < 2 * F::kBytes; line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(at + ahead + line), _MM_HINT_T0);
        }
        Lanes w0;
        Lanes w1;
        F::pair(at, w0, w1);
#pragma GCC unroll 4
        for (size_t r = 0; r < M; ++r) add_product(w0, x[r * x_stride + k], t[p][r]);
#pragma GCC unroll 4
        for (size_t r = 0; r < M; ++r) add_product(w1, x[r * x_stride + k + 1], t[p][r]);
      }
    }
    if (k < end) {
#pragma GCC unroll 4
      for (size_t p = 0; p < P; ++p) {
        const Lanes w = F::single(panels + p * panel_bytes + k * F::kBytes);
#pragma GCC unroll 4
        for (size_t r = 0; r < M; ++r) add_product(w, x[r * x_stride + k], t[p][r]);
      }
    }
#pragma GCC unroll 4
    for (size_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (size_t r = 0; r < M; ++r) {
        float* to = f[p][r];
        _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), t[p][r].low));
        _mm256_store_ps(to + 8, _mm256_add_ps(_mm256_load_ps(to + 8), t[p][r].high));
      }
    }
  }
  for (size_t p = 0; p < P; ++p) {
    for (size_t r = 0; r < M; ++r) {
      __builtin_memcpy(y + r * y_stride + p * kLanes, f[p][r], sizeof f[p][r]);
    }
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
  if (P == 1) run(kernel<F, 1, 4>, 4);
  if (P <= 2) run(kernel<F, (P <= 2 ? P : 1), 2>, 2);
  run(kernel<F, P, 1>, 1);
}

template <class F>
void float_matmul(const MatmulArgs& args) {
  size_t p = args.panel_begin;
  if (args.rows == 1) {
    for (; p + 4 <= args.panel_end; p += 4) panels_matmul<F, 4>(args, p);
  }
  if (args.rows <= 3) {
    for (; p + 2 <= args.panel_end; p += 2) panels_matmul<F, 2>(args, p);
  }
  for (; p < args.panel_end; ++p) panels_matmul<F, 1>(args, p);
}

}  // namespace

void fill_matmul_float(Kernels& kernels) {
  kernels.matmul[static_cast<size_t>(PanelFormat::kF32)] = float_matmul<F32>;
  kernels.matmul[static_cast<size_t>(PanelFormat::kF16)] = float_matmul<F16>;
  kernels.matmul[static_cast<size_t>(PanelFormat::kBF16)] = float_matmul<BF16>;
}

}  // namespace kvikk::avx2
