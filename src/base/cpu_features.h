#pragma once
// What this processor can run AND the operating system saves across a context switch (XCR0): a
// CPUID bit alone is not enough, a kernel that does not save the wide registers corrupts them
// silently.

namespace kvikk {

struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx512_vnni = false;  // AVX-512 F/BW/DQ/VL/VBMI with VNNI and BF16
  bool amx = false;          // AMX tiles with int8 and bf16, and the permission to use them
};

CpuFeatures detect_cpu_features();

}  // namespace kvikk
