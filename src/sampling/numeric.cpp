// Loops over exp_clamped, shaped so that the compiler vectorises them without reordering a sum: the
// order is written out as lanes.

#include "sampling/numeric.h"

#include <algorithm>

namespace kvikk {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kChunk = 256;

}  // namespace

double sum_exp(const float* logits, size_t count, double shift) {
  double lane[kLanes] = {};
  double x[kChunk];
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t length = std::min(kChunk, count - begin);
    for (size_t i = 0; i < length; ++i) {
      const double distance = logits[begin + i] - shift;
      x[i] = distance > kLowestExponent ? distance : kLowestExponent;
    }
    size_t i = 0;
    for (; i + kLanes <= length; i += kLanes) {
      for (size_t l = 0; l < kLanes; ++l) lane[l] += exp_clamped(x[i + l]);
    }
    for (size_t l = 0; i + l < length; ++l) lane[l] += exp_clamped(x[i + l]);
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

void exp_in_place(double* x, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] = x[i] > kLowestExponent ? x[i] : kLowestExponent;
  for (size_t i = 0; i < count; ++i) x[i] = exp_clamped(x[i]);
}

}  // namespace kvikk
