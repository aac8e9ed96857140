#include "codec/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/counter_random.h"

namespace kvikk {

namespace {

// Counters of a seed that the signs and the permutation use.
constexpr uint64_t kPermutationCounters = uint64_t{1} << 32;

// Every way to compute a step gives the same bits: a sum or a difference of the same two numbers.

// A step joins numbers `step` apart.
void one_step(float* __restrict x, size_t step) {
  float* __restrict high = x + step;
  for (size_t i = 0; i < step; ++i) {
    const float a = x[i];
    const float b = high[i];
    x[i] = a + b;
    high[i] = a - b;
  }
}

// That of `step` and that of 2 step: less traffic than one by one.
void two_steps(float* __restrict x, size_t step) {
  float* __restrict x1 = x + step;
  float* __restrict x2 = x1 + step;
  float* __restrict x3 = x2 + step;
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

// Four numbers in a register of any machine.
using Four = float __attribute__((vector_size(16)));
using FourBits = uint32_t __attribute__((vector_size(16)));
constexpr size_t kRegisterNumbers = 16;  // that four_steps joins

Four load(const float* from) {
  Four x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
void store(float* to, Four x) { std::memcpy(to, &x, sizeof x); }

Four negate(Four x, FourBits signs) {
  return reinterpret_cast<Four>(reinterpret_cast<FourBits>(x) ^ signs);
}

// The steps of 1 and 2.
Four inner_steps(Four x) {
  constexpr uint32_t kSign = 0x80000000;
  x = __builtin_shufflevector(x, x, 1, 0, 3, 2) + negate(x, FourBits{0, kSign, 0, kSign});
  return __builtin_shufflevector(x, x, 2, 3, 0, 1) + negate(x, FourBits{0, 0, kSign, kSign});
}

// The steps of 1, 2, 4 and 8.
void four_steps(float* x) {
  const Four x0 = inner_steps(load(x));
  const Four x1 = inner_steps(load(x + 4));
  const Four x2 = inner_steps(load(x + 8));
  const Four x3 = inner_steps(load(x + 12));
  const Four a = x0 + x1;
  const Four b = x0 - x1;
  const Four c = x2 + x3;
  const Four d = x2 - x3;
  store(x, a + c);
  store(x + 4, b + d);
  store(x + 8, a - c);
  store(x + 12, b - d);
}

}  // namespace

void hadamard_transform(float* x, size_t n) {
  CHECK(std::has_single_bit(n));
  size_t step = 1;
  if (n >= kRegisterNumbers) {
    for (size_t first = 0; first < n; first += kRegisterNumbers) four_steps(x + first);
    step = kRegisterNumbers;
  }
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
