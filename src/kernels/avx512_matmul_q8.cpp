// AVX-512 products of panels with 6- and 8-bit codes.

#include "kernels/avx512_matmul.h"

#include "kernels/avx512_matmul_tile.h"

namespace kvikk::avx512 {

void matmul_q6k(const MatmulArgs& args) { quantized_matmul<Q6K>(args); }
void matmul_q8(const MatmulArgs& args) { quantized_matmul<Q8>(args); }

}  // namespace kvikk::avx512
