// Matrix products for AVX2: the scalar reference until these are written.

#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_matmul(Kernels&) {}

}  // namespace kvikk::avx2
