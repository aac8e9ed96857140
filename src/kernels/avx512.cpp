#include "kernels/kernels.h"

namespace kvikk::avx512 {
void fill(Kernels&) {}
}  // namespace kvikk::avx512
