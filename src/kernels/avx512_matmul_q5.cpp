// AVX-512 products of panels with 5-bit codes.

#include "kernels/avx512_matmul.h"

#include "kernels/avx512_matmul_tile.h"

namespace kvikk::avx512 {

void matmul_q5(const MatmulArgs& args) { quantized_matmul<Q5>(args); }
void matmul_q5m(const MatmulArgs& args) { quantized_matmul<Q5M>(args); }
void matmul_q5k(const MatmulArgs& args) { quantized_matmul<Q5K>(args); }

}  // namespace kvikk::avx512
