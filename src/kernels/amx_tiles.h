#pragma once
// The tile registers of AMX: configuration, loads and stores. In assembly, because g++ 12 declares
// 8 of the configuration's 64 bytes as read, and no memory for tile loads.

#include <cstddef>
#include <cstdint>

namespace kvikk::amx {

namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

void load_config(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }

void release_tiles() { asm volatile("tilerelease"); }

template <int kTile>
inline void load_tile(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void store_tile(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

}  // namespace

}  // namespace kvikk::amx
