#pragma once
// A random rotation: an orthogonal map after which the coordinates of any vector look like those of
// a random one, so that one fixed codebook fits them all.
//
// Two rounds of random signs and a Hadamard transform, seeded by counters: n log n additions and
// no matrix. A size that is no power of two is cut into blocks that are (80 = 64 + 16), and the
// coordinates are permuted between the rounds so that the blocks mix.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvikk {

// Largest vector that a Rotation takes.
inline constexpr size_t kRotationSizeMax = 1 << 12;

class Rotation {
 public:
  // Precondition: 1 <= size <= kRotationSizeMax.
  Rotation(size_t size, uint64_t seed);

  size_t size() const { return size_; }
  // out = R x, both [size]; out may be x.
  void apply(const float* x, float* out) const;
  // out = R^T x = R^-1 x.
  void invert(const float* x, float* out) const;

 private:
  void transform(float* x) const;

  size_t size_;
  std::vector<size_t> blocks_;         // powers of two, their sum is size
  std::vector<float> signs_[2];        // [size]: of a round, with the Hadamard factor
  std::vector<uint32_t> permutation_;  // [size], or empty
};

// In place, without a factor: twice gives n times the input. n: a power of two.
void hadamard_transform(float* x, size_t n);

}  // namespace kvikk
