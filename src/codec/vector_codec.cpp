#include "codec/vector_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/counter_random.h"
#include "codec/half_scale.h"

namespace kvikk {

namespace {

double norm(const float* x, size_t size) {
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

}  // namespace

void pack_codes(const uint8_t* codes, size_t count, size_t bits, uint8_t* out) {
  std::memset(out, 0, (count * bits + 7) / 8);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * bits;
    const unsigned shifted = static_cast<unsigned>(codes[i]) << at % 8;
    out[at / 8] = static_cast<uint8_t>(out[at / 8] | shifted);
    if (at % 8 + bits > 8) out[at / 8 + 1] = static_cast<uint8_t>(shifted >> 8);
  }
}

void unpack_codes(const uint8_t* packed, size_t count, size_t bits, uint8_t* out) {
  const unsigned mask = (1u << bits) - 1u;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * bits;
    unsigned value = packed[at / 8];
    if (at % 8 + bits > 8) value |= static_cast<unsigned>(packed[at / 8 + 1]) << 8;
    out[i] = static_cast<uint8_t>(value >> at % 8 & mask);
  }
}

float quantize_rotated(const Codebook& book, ScaleRule rule, const float* x, size_t size,
                       uint8_t* codes) {
  const double length = norm(x, size);
  if (!std::isfinite(length) || length == 0) {
    std::memset(codes, 0, size);
    return length == 0 ? 0.0f : NAN;
  }
  const double root = std::sqrt(static_cast<double>(size));
  const double to_unit = root / length;
  double squares = 0;   // of the levels
  double products = 0;  // of levels and unit coordinates
  for (size_t i = 0; i < size; ++i) {
    const double unit = x[i] * to_unit;
    codes[i] = book.code(static_cast<float>(unit));
    const double level = book.levels[codes[i]];
    squares += level * level;
    products += level * unit;
  }
  switch (rule) {
    case ScaleRule::kNorm:
      return static_cast<float>(length / root);
    case ScaleRule::kNormMatched:
      return static_cast<float>(length / std::sqrt(squares));
    case ScaleRule::kUnbiased:
      return static_cast<float>(length * root / products);
  }
  CHECK(false);
  return 0;
}

MseCodec::MseCodec(size_t size, size_t bits, uint64_t seed, ScaleRule rule)
    : rotation_(size, seed), book_(make_codebook(size, bits)), rule_(rule) {}

void MseCodec::encode(const float* x, uint8_t* out) const {
  std::vector<float> rotated(size());
  std::vector<uint8_t> codes(size());
  rotation_.apply(x, rotated.data());
  const float scale = quantize_rotated(book_, rule_, rotated.data(), size(), codes.data());
  pack_codes(codes.data(), size(), book_.bits, out);
  put_half_scale(scale, out + bytes() - 2);
}

void MseCodec::decode(const uint8_t* coded, float* out) const {
  std::vector<uint8_t> codes(size());
  unpack_codes(coded, size(), book_.bits, codes.data());
  const float scale = get_half_scale(coded + bytes() - 2);
  for (size_t i = 0; i < size(); ++i) out[i] = book_.levels[codes[i]] * scale;
  rotation_.invert(out, out);
}

ProdCodec::ProdCodec(size_t size, size_t bits, uint64_t seed) : size_(size) {
  CHECK(bits >= 1 && bits <= 5);
  if (bits > 1) mse_ = std::make_unique<MseCodec>(size, bits - 1, seed, ScaleRule::kNorm);
  projection_.resize(size * size);
  for (size_t i = 0; i < projection_.size(); ++i) {
    projection_[i] = static_cast<float>(counter_normal(~seed, i));
  }
}

size_t ProdCodec::bytes() const { return (mse_ != nullptr ? mse_->bytes() : 0) + sign_bytes() + 2; }

void ProdCodec::encode(const float* x, uint8_t* out) const {
  std::vector<float> rest(x, x + size_);
  if (mse_ != nullptr) {
    std::vector<float> near(size_);
    mse_->encode(x, out);
    mse_->decode(out, near.data());
    for (size_t i = 0; i < size_; ++i) rest[i] -= near[i];
    out += mse_->bytes();
  }
  std::vector<uint8_t> signs(size_);
  for (size_t row = 0; row < size_; ++row) {
    double sum = 0;
    for (size_t i = 0; i < size_; ++i) {
      sum += static_cast<double>(projection_[row * size_ + i]) * rest[i];
    }
    signs[row] = sum >= 0 ? 1 : 0;
  }
  pack_codes(signs.data(), size_, 1, out);
  put_half_scale(static_cast<float>(norm(rest.data(), size_)), out + sign_bytes());
}

void ProdCodec::decode(const uint8_t* coded, float* out) const {
  std::fill(out, out + size_, 0.0f);
  if (mse_ != nullptr) {
    mse_->decode(coded, out);
    coded += mse_->bytes();
  }
  std::vector<uint8_t> signs(size_);
  unpack_codes(coded, size_, 1, signs.data());
  const double root = std::sqrt(3.141592653589793 / 2);
  const double factor = root / static_cast<double>(size_) * get_half_scale(coded + sign_bytes());
  std::vector<double> sums(size_);
  for (size_t row = 0; row < size_; ++row) {
    const double sign = signs[row] != 0 ? 1 : -1;
    for (size_t i = 0; i < size_; ++i) {
      sums[i] += sign * static_cast<double>(projection_[row * size_ + i]);
    }
  }
  for (size_t i = 0; i < size_; ++i) out[i] += static_cast<float>(factor * sums[i]);
}

OutlierCodec::OutlierCodec(size_t size, std::vector<size_t> outliers, size_t bits, uint64_t seed,
                           ScaleRule rule)
    : outliers_(std::move(outliers)),
      high_(outliers_.size(), bits + 1, seed, rule),
      low_(size - outliers_.size(), bits, seed + 1, rule) {
  for (size_t i = 0; i < size; ++i) {
    if (!std::binary_search(outliers_.begin(), outliers_.end(), i)) others_.push_back(i);
  }
  CHECK(this->size() == size);
}

void OutlierCodec::encode(const float* x, uint8_t* out) const {
  std::vector<float> part;
  for (size_t i : outliers_) part.push_back(x[i]);
  high_.encode(part.data(), out);
  part.clear();
  for (size_t i : others_) part.push_back(x[i]);
  low_.encode(part.data(), out + high_.bytes());
}

void OutlierCodec::decode(const uint8_t* coded, float* out) const {
  std::vector<float> part(size());
  high_.decode(coded, part.data());
  for (size_t i = 0; i < outliers_.size(); ++i) out[outliers_[i]] = part[i];
  low_.decode(coded + high_.bytes(), part.data());
  for (size_t i = 0; i < others_.size(); ++i) out[others_[i]] = part[i];
}

}  // namespace kvikk
