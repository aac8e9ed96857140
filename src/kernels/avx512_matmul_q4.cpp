// AVX-512 products of panels with 4-bit codes.

#include "kernels/avx512_matmul.h"

#include "kernels/avx512_matmul_tile.h"

namespace kvikk::avx512 {

void matmul_q4(const MatmulArgs& args) { quantized_matmul<Q4>(args); }
void matmul_q4m(const MatmulArgs& args) { quantized_matmul<Q4M>(args); }
void matmul_q4k(const MatmulArgs& args) { quantized_matmul<Q4K>(args); }

}  // namespace kvikk::avx512
