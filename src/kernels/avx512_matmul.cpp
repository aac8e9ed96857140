// The table entries of the AVX-512 matrix products.

#include "kernels/avx512_matmul.h"

#include "kernels/kernels.h"

namespace kvikk::avx512 {

void fill_matmul(Kernels& kernels) {
  const auto set = [&](PanelFormat format, void (*entry)(const MatmulArgs&)) {
    kernels.matmul[static_cast<size_t>(format)] = entry;
  };
  set(PanelFormat::kF32, matmul_f32);
  set(PanelFormat::kF16, matmul_f16);
  set(PanelFormat::kBF16, matmul_bf16);
  set(PanelFormat::kQ8, matmul_q8);
  set(PanelFormat::kQ4, matmul_q4);
  set(PanelFormat::kQ4M, matmul_q4m);
  set(PanelFormat::kQ5, matmul_q5);
  set(PanelFormat::kQ5M, matmul_q5m);
  set(PanelFormat::kQ4K, matmul_q4k);
  set(PanelFormat::kQ5K, matmul_q5k);
  set(PanelFormat::kQ6K, matmul_q6k);
}

}  // namespace kvikk::avx512
