// Chooses the kernels once, when the engine starts.

#include "kernels/kernels.h"

namespace kvikk {

Kernels make_kernels(const CpuFeatures& features) {
  Kernels kernels;
  scalar::fill(kernels);
#if defined(__x86_64__)
  if (features.avx2) avx2::fill(kernels);
  if (features.avx512_vnni) avx512::fill(kernels);
  if (features.amx) amx::fill(kernels);
#else
  static_cast<void>(features);
#endif
  return kernels;
}

}  // namespace kvikk
