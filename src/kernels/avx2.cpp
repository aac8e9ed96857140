#include "kernels/kernels.h"

namespace kvikk::avx2 {
void fill(Kernels&) {}
}  // namespace kvikk::avx2
