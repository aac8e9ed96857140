#include "codec/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "codec/counter_random.h"

namespace kvikk {

namespace {

// Counters of a seed that the signs and the permutation use.
constexpr uint64_t kPermutationCounters = uint64_t{1} << 32;

// The first two steps of a transform at once: less traffic than one by one.
void quads(float* x, size_t n) {
  for (size_t i = 0; i < n; i += 4) {
    const float a = x[i] + x[i + 1];
    const float b = x[i] - x[i + 1];
    const float c = x[i + 2] + x[i + 3];
    const float d = x[i + 2] - x[i + 3];
    x[i] = a + c;
    x[i + 1] = b + d;
    x[i + 2] = a - c;
    x[i + 3] = b - d;
  }
}

// A step joins numbers `step` apart.
void one_step(float* x, size_t step) {
  float* high = x + step;
  for (size_t i = 0; i < step; ++i) {
    const float a = x[i];
    const float b = high[i];
    x[i] = a + b;
    high[i] = a - b;
  }
}

// That of `step` and that of 2 step.
void two_steps(float* x, size_t step) {
  float* x1 = x + step;
  float* x2 = x1 + step;
  float* x3 = x2 + step;
  for (size_t i = 0; i < step; ++i) {
    const float a = x[i] + x1[i];
    const float b = x[i] - x1[i];
    const float c = x2[i] + x3[i];
    const float d = x2[i] - x3[i];
    x[i] = a + c;
    x1[i] = b + d;
    x2[i] = a - c;
    x3[i] = b - d;
  }
}

}  // namespace

void hadamard_transform(float* x, size_t n) {
  CHECK(std::has_single_bit(n));
  if (n == 2) {
    const float a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  }
  if (n < 4) return;
  quads(x, n);
  size_t step = 4;
  for (; step * 4 <= n; step *= 4) {
    for (size_t first = 0; first < n; first += 4 * step) two_steps(x + first, step);
  }
  if (step < n) one_step(x, step);
}

Rotation::Rotation(size_t size, uint64_t seed) : size_(size) {
  CHECK(size >= 1);
  CHECK(size <= kRotationSizeMax);
  for (size_t rest = size; rest > 0;) {
    blocks_.push_back(std::bit_floor(rest));
    rest -= blocks_.back();
  }
  for (size_t round = 0; round < 2; ++round) {
    size_t at = 0;
    for (size_t block : blocks_) {
      const float factor = 1.0f / std::sqrt(static_cast<float>(block));
      for (size_t i = 0; i < block; ++i, ++at) {
        const uint64_t bits = counter_random(seed, round * kRotationSizeMax + at);
        signs_[round].push_back((bits >> 63) != 0 ? -factor : factor);
      }
    }
  }
  if (blocks_.size() == 1) return;
  for (size_t i = 0; i < size; ++i) permutation_.push_back(static_cast<uint32_t>(i));
  for (size_t i = size - 1; i > 0; --i) {
    std::swap(permutation_[i],
              permutation_[counter_random(seed, kPermutationCounters + i) % (i + 1)]);
  }
}

void Rotation::transform(float* x) const {
  for (size_t block : blocks_) {
    hadamard_transform(x, block);
    x += block;
  }
}

void Rotation::apply(const float* x, float* out) const {
  for (size_t i = 0; i < size_; ++i) out[i] = x[i] * signs_[0][i];
  transform(out);
  if (!permutation_.empty()) {
    float copy[kRotationSizeMax];
    std::copy(out, out + size_, copy);
    for (size_t i = 0; i < size_; ++i) out[i] = copy[permutation_[i]];
  }
  for (size_t i = 0; i < size_; ++i) out[i] *= signs_[1][i];
  transform(out);
}

// A Hadamard transform with its factor is its own inverse, and so are the signs.
void Rotation::invert(const float* x, float* out) const {
  if (out != x) std::copy(x, x + size_, out);
  transform(out);
  for (size_t i = 0; i < size_; ++i) out[i] *= signs_[1][i];
  if (!permutation_.empty()) {
    float copy[kRotationSizeMax];
    std::copy(out, out + size_, copy);
    for (size_t i = 0; i < size_; ++i) out[permutation_[i]] = copy[i];
  }
  transform(out);
  for (size_t i = 0; i < size_; ++i) out[i] *= signs_[0][i];
}

}  // namespace kvikk
