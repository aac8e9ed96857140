#pragma once
// The code books of the IQ types: a row is eight elements of two bits each (kIq1*, kIq2*) or four
// of four bits (kIq3*), the first element lowest; they index the values in integer_blocks.cpp.

#include <cstdint>

namespace kvikk {

extern const uint16_t kIq1Grid[2048];
extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];

}  // namespace kvikk
