// The AVX-512 level: needs VNNI, VBMI and BF16 besides the base sets (Ice Lake and Cooper Lake
// features together: Sapphire Rapids, Zen 4 and later).

#include "kernels/kernels.h"

namespace kvikk::avx512 {

// In avx512_matmul.cpp, avx512_attend.cpp, avx512_rows.cpp and avx512_peak.cpp.
void fill_matmul(Kernels& kernels);
void fill_attend(Kernels& kernels);
void fill_coded(Kernels& kernels);         // avx512_coded.cpp
void fill_coded_attend(Kernels& kernels);  // avx512_coded_attend.cpp
void fill_rows(Kernels& kernels);
void fill_peak(Kernels& kernels);
void fill_search(Kernels& kernels);  // avx512_search.cpp

void fill(Kernels& kernels) {
  kernels.level = "avx512";
  fill_matmul(kernels);
  fill_attend(kernels);
  fill_coded(kernels);
  fill_coded_attend(kernels);
  fill_rows(kernels);
  fill_peak(kernels);
  fill_search(kernels);
}

}  // namespace kvikk::avx512
