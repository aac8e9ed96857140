// The AVX2 level, with FMA and F16C: processors from Haswell and Zen on.

#include "kernels/kernels.h"

namespace kvikk::avx2 {

// In avx2_matmul.cpp, avx2_attend.cpp, avx2_rows.cpp and avx2_peak.cpp.
void fill_matmul(Kernels& kernels);
void fill_attend(Kernels& kernels);
void fill_rows(Kernels& kernels);
void fill_peak(Kernels& kernels);
void fill_search(Kernels& kernels);  // avx2_search.cpp

void fill(Kernels& kernels) {
  kernels.level = "avx2";
  fill_matmul(kernels);
  fill_attend(kernels);
  fill_rows(kernels);
  fill_peak(kernels);
  fill_search(kernels);
}

}  // namespace kvikk::avx2
