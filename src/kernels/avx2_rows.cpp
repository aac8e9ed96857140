// Filled in by the next commits; until then the scalar entries stay.

#include "kernels/kernels.h"

namespace kvikk::avx2 {

void fill_rows(Kernels&) {}

}  // namespace kvikk::avx2
