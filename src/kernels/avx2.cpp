// The AVX2 level, with FMA and F16C: processors from Haswell and Zen on.

#include "kernels/kernels.h"

namespace kvikk::avx2 {

// Each in the file of its name: avx2_matmul.cpp ...
void fill_matmul(Kernels& kernels);
void fill_attend(Kernels& kernels);
void fill_coded(Kernels& kernels);
void fill_coded_attend(Kernels& kernels);
void fill_rows(Kernels& kernels);
void fill_peak(Kernels& kernels);
void fill_search(Kernels& kernels);  // avx2_search.cpp

void fill(Kernels& kernels) {
  kernels.level = "avx2";
  fill_matmul(kernels);
  fill_attend(kernels);
  fill_coded(kernels);
  fill_coded_attend(kernels);
  fill_rows(kernels);
  fill_peak(kernels);
  fill_search(kernels);
}

}  // namespace kvikk::avx2
