// How fast the tile unit multiplies when nothing has to be loaded: the limits that 'kvikk bench'
// measures itself against.

#include "kernels/amx_tiles.h"
#include "kernels/kernels.h"

namespace kvikk::amx {

void fill_peak(Kernels& kernels);

namespace {

constexpr uint64_t kProducts = 4;              // of an iteration, into tiles of their own
constexpr uint64_t kOperations = 2 * 16 * 16;  // of a product, for each k

void configure() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = 16;
  }
  load_config(config);
  asm volatile(
      "tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n tilezero %tmm3\n"
      "tilezero %tmm4\n tilezero %tmm5");
}

uint64_t peak_int8(uint64_t iterations) {
  configure();
  for (uint64_t n = 0; n < iterations; ++n) {
    asm volatile(
        "tdpbssd %tmm5, %tmm4, %tmm0\n tdpbssd %tmm5, %tmm4, %tmm1\n"
        "tdpbssd %tmm5, %tmm4, %tmm2\n tdpbssd %tmm5, %tmm4, %tmm3");
  }
  release_tiles();
  return iterations * kProducts * kOperations * 64;
}

uint64_t peak_bf16(uint64_t iterations) {
  configure();
  for (uint64_t n = 0; n < iterations; ++n) {
    asm volatile(
        "tdpbf16ps %tmm5, %tmm4, %tmm0\n tdpbf16ps %tmm5, %tmm4, %tmm1\n"
        "tdpbf16ps %tmm5, %tmm4, %tmm2\n tdpbf16ps %tmm5, %tmm4, %tmm3");
  }
  release_tiles();
  return iterations * kProducts * kOperations * 32;
}

}  // namespace

void fill_peak(Kernels& kernels) {
  kernels.peak_int8 = peak_int8;
  kernels.peak_bf16 = peak_bf16;
}

}  // namespace kvikk::amx
