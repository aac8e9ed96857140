#pragma once
// The kernel tables that this machine can run, for tests that compare levels.

#include <vector>

#include "base/cpu_features.h"
#include "kernels/kernels.h"

namespace kvikk {

inline Kernels scalar_kernels() { return make_kernels(CpuFeatures{}); }

// Every level from scalar up to the best one of this machine.
inline std::vector<Kernels> kernel_levels() {
  const CpuFeatures machine = detect_cpu_features();
  std::vector<Kernels> levels = {scalar_kernels()};
  CpuFeatures features;
  if (machine.avx2) {
    features.avx2 = true;
    levels.push_back(make_kernels(features));
  }
  if (machine.avx512_vnni) {
    features.avx512_vnni = true;
    levels.push_back(make_kernels(features));
  }
  if (machine.amx) {
    features.amx = true;
    levels.push_back(make_kernels(features));
  }
  return levels;
}

}  // namespace kvikk
