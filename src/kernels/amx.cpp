#include "kernels/kernels.h"

namespace kvikk::amx {
void fill(Kernels& kernels) { kernels.level = "amx"; }
}  // namespace kvikk::amx
