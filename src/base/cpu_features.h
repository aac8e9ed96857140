#pragma once
// What this processor can run AND the operating system saves across a context switch (XCR0): a
// CPUID bit alone is not enough, a kernel that does not save the wide registers corrupts them
// silently.

#include <string>

#include "base/status.h"

namespace kvikk {

struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx512_vnni = false;  // AVX-512 F/BW/DQ/VL/VBMI with VNNI and BF16
  bool amx = false;          // AMX tiles with int8 and bf16, and the permission to use them
};

CpuFeatures detect_cpu_features();

// What a user forces by name ("scalar", "avx2", "avx512", "amx"); empty: all that is here. Errors:
// kInvalidArgument when this machine lacks it, or nobody knows it.
Result<CpuFeatures> choose_features(const std::string& level);

// One for each core that this process may use.
int available_cores();

}  // namespace kvikk
