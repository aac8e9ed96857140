#pragma once
// TurboQuant and its kin: a vector becomes a few bits a coordinate, without training data, and
// inner products survive (Zandieh et al., arXiv 2504.19874).
//
// A vector is rotated at random, each coordinate is replaced by the nearest level of a codebook for
// the coordinates of a random unit vector, and one scale keeps the length. Zeros come back as
// zeros; a vector with a NaN or an infinity comes back as NaN in every coordinate. Scales are
// half floats (half_scale.h says what happens at their ends).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/codebook.h"
#include "codec/rotation.h"

namespace kvikk {

// What the stored scale does to a code's levels.
enum class ScaleRule : uint8_t {
  kNorm,         // |x|: what the paper stores; x^ is a little short
  kNormMatched,  // |x| / |levels|: x^ has the length of x
  kUnbiased,     // |x|^2 / <x, levels>: the inner product with x itself is exact
};

// Replaces rotated coordinates by codes. Returns the scale: x^ = scale * level. 0 for zeros, NaN
// where a coordinate is not finite. x, codes: [size].
float quantize_rotated(const Codebook& book, ScaleRule rule, const float* x, size_t size,
                       uint8_t* codes);

class VectorCodec {
 public:
  virtual ~VectorCodec() = default;
  virtual size_t size() const = 0;
  // Of a coded vector, scales included.
  virtual size_t bytes() const = 0;
  // x [size], out [bytes()].
  virtual void encode(const float* x, uint8_t* out) const = 0;
  // out [size].
  virtual void decode(const uint8_t* coded, float* out) const = 0;
};

// Codes of `bits` a coordinate, then the scale. bits: 1 to 4, or 8.
class MseCodec : public VectorCodec {
 public:
  MseCodec(size_t size, size_t bits, uint64_t seed, ScaleRule rule = ScaleRule::kNormMatched);
  size_t size() const override { return rotation_.size(); }
  size_t bytes() const override { return (size() * book_.bits + 7) / 8 + 2; }
  void encode(const float* x, uint8_t* out) const override;
  void decode(const uint8_t* coded, float* out) const override;
  const Codebook& codebook() const { return book_; }

 private:
  Rotation rotation_;
  Codebook book_;
  ScaleRule rule_;
};

// `bits` a coordinate, of which one is the sign of a Gaussian projection of what the other bits
// left over (QJL, arXiv 2406.03482): inner products are unbiased over seeds, at a variance of at
// most pi / 2 * distortion(bits - 1) / size for unit vectors. bits: 1 to 5.
class ProdCodec : public VectorCodec {
 public:
  ProdCodec(size_t size, size_t bits, uint64_t seed);
  size_t size() const override { return size_; }
  size_t bytes() const override;
  void encode(const float* x, uint8_t* out) const override;
  void decode(const uint8_t* coded, float* out) const override;

 private:
  size_t sign_bytes() const { return (size_ + 7) / 8; }

  size_t size_;
  std::unique_ptr<MseCodec> mse_;  // null for one bit
  std::vector<float> projection_;  // [size, size], standard normal
};

// The coordinates named in `outliers` get one bit more than the others, each part with a rotation
// and a scale of its own. With a quarter of 128 coordinates, 2 and 3 bits are 2.5 bits a
// coordinate, scales included; 3 and 4 bits are 3.5.
class OutlierCodec : public VectorCodec {
 public:
  // outliers: ascending, at least 4, and at least 4 coordinates are none. bits of the others: 1-3.
  OutlierCodec(size_t size, std::vector<size_t> outliers, size_t bits, uint64_t seed,
               ScaleRule rule = ScaleRule::kNormMatched);
  size_t size() const override { return outliers_.size() + others_.size(); }
  size_t bytes() const override { return high_.bytes() + low_.bytes(); }
  void encode(const float* x, uint8_t* out) const override;
  void decode(const uint8_t* coded, float* out) const override;

 private:
  std::vector<size_t> outliers_, others_;
  MseCodec high_, low_;
};

// Bits one after the other, the lowest first. out: [(count * bits + 7) / 8]
void pack_codes(const uint8_t* codes, size_t count, size_t bits, uint8_t* out);
void unpack_codes(const uint8_t* packed, size_t count, size_t bits, uint8_t* out);

}  // namespace kvikk
