#include "kernels/kernels.h"

namespace kvikk::avx512 {
void fill_matmul(Kernels&) {}
}  // namespace kvikk::avx512
