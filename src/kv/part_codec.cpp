#include "kv/part_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "codec/half_scale.h"
#include "codec/rotation.h"
#include "codec/vector_codec.h"

namespace kvikk {

namespace {

constexpr size_t kScaleGroup = 32;  // numbers that share a scale

// A half float of either sign.
void put_half(float value, uint8_t* out) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto half = static_cast<uint16_t>(scale_to_half(std::fabs(value)) | sign);
  std::memcpy(out, &half, sizeof half);
}

// Each vector by itself.
class VectorPart : public PartCodec {
 public:
  explicit VectorPart(std::unique_ptr<VectorCodec> codec) : codec_(std::move(codec)) {}
  size_t bytes() const override { return kPageTokens * codec_->bytes(); }
  void encode(const float* x, uint8_t* coded) const override {
    for (size_t t = 0; t < kPageTokens; ++t) {
      codec_->encode(x + t * codec_->size(), coded + t * codec_->bytes());
    }
  }
  void decode(const uint8_t* coded, float* out) const override {
    for (size_t t = 0; t < kPageTokens; ++t) {
      codec_->decode(coded + t * codec_->bytes(), out + t * codec_->size());
    }
  }

 private:
  std::unique_ptr<VectorCodec> codec_;
};

// A quarter of the dims, those that are largest in a page, with one bit more than the others
// (TurboQuant's 2.5 and 3.5 bits): a mask of the dims, then the two parts of each vector.
class OutlierPart : public PartCodec {
 public:
  OutlierPart(size_t size, size_t bits, uint64_t seed)
      : size_(size), high_(size / 4, bits + 1, seed), low_(size - size / 4, bits, seed + 1) {}
  size_t bytes() const override { return mask_bytes() + kPageTokens * vector_bytes(); }
  void encode(const float* x, uint8_t* coded) const override {
    std::vector<double> energy(size_);
    for (size_t i = 0; i < kPageTokens * size_; ++i) {
      energy[i % size_] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    std::vector<size_t> order(size_);
    for (size_t d = 0; d < size_; ++d) order[d] = d;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return energy[a] > energy[b]; });
    std::memset(coded, 0, mask_bytes());
    for (size_t i = 0; i < high_.size(); ++i) {
      uint8_t& byte = coded[order[i] / 8];
      byte = static_cast<uint8_t>(byte | 1u << order[i] % 8);
    }
    std::vector<float> high(high_.size());
    std::vector<float> low(low_.size());
    for (size_t t = 0; t < kPageTokens; ++t) {
      size_t h = 0;
      size_t l = 0;
      for (size_t d = 0; d < size_; ++d) {
        (is_high(coded, d) ? high[h++] : low[l++]) = x[t * size_ + d];
      }
      uint8_t* out = coded + mask_bytes() + t * vector_bytes();
      high_.encode(high.data(), out);
      low_.encode(low.data(), out + high_.bytes());
    }
  }
  void decode(const uint8_t* coded, float* out) const override {
    std::vector<float> high(high_.size());
    std::vector<float> low(low_.size());
    for (size_t t = 0; t < kPageTokens; ++t) {
      const uint8_t* from = coded + mask_bytes() + t * vector_bytes();
      high_.decode(from, high.data());
      low_.decode(from + high_.bytes(), low.data());
      size_t h = 0;
      size_t l = 0;
      for (size_t d = 0; d < size_; ++d) {
        out[t * size_ + d] = is_high(coded, d) ? high[h++] : low[l++];
      }
    }
  }

 private:
  size_t mask_bytes() const { return (size_ + 7) / 8; }
  size_t vector_bytes() const { return high_.bytes() + low_.bytes(); }
  static bool is_high(const uint8_t* mask, size_t d) { return (mask[d / 8] >> d % 8 & 1u) != 0; }

  size_t size_;
  MseCodec high_, low_;
};

// KIVI (arXiv 2402.02750): even steps between the smallest and the largest of 32 numbers; of keys
// 32 tokens of one dim, of values 32 dims of one token. Codes, then smallest and step of each group
// as halves.
class KiviPart : public PartCodec {
 public:
  KiviPart(size_t size, size_t bits, bool keys) : size_(size), bits_(bits), keys_(keys) {}
  size_t bytes() const override { return code_bytes() + groups() * 4; }
  void encode(const float* x, uint8_t* coded) const override {
    std::vector<uint8_t> codes(kPageTokens * size_);
    const float most = static_cast<float>((1u << bits_) - 1u);
    for (size_t g = 0; g < groups(); ++g) {
      float low = INFINITY;
      float high = -INFINITY;
      bool finite = true;
      for (size_t i = 0; i < kScaleGroup; ++i) {
        const float value = x[at(g, i)];
        finite = finite && std::isfinite(value);
        low = std::min(low, value);
        high = std::max(high, value);
      }
      uint8_t* scales = coded + code_bytes() + g * 4;
      put_half(finite ? low : NAN, scales);
      put_half(finite ? (high - low) / most : NAN, scales + 2);
      const float first = get_half_scale(scales);
      const float step = get_half_scale(scales + 2);
      for (size_t i = 0; i < kScaleGroup; ++i) {
        const float steps = step > 0.0f ? (x[at(g, i)] - first) / step : 0.0f;
        codes[at(g, i)] = static_cast<uint8_t>(std::clamp(std::nearbyint(steps), 0.0f, most));
      }
    }
    pack_codes(codes.data(), codes.size(), bits_, coded);
  }
  void decode(const uint8_t* coded, float* out) const override {
    std::vector<uint8_t> codes(kPageTokens * size_);
    unpack_codes(coded, codes.size(), bits_, codes.data());
    for (size_t g = 0; g < groups(); ++g) {
      const uint8_t* scales = coded + code_bytes() + g * 4;
      const float first = get_half_scale(scales);
      const float step = get_half_scale(scales + 2);
      for (size_t i = 0; i < kScaleGroup; ++i) {
        out[at(g, i)] = first + step * static_cast<float>(codes[at(g, i)]);
      }
    }
  }

 private:
  size_t code_bytes() const { return kPageTokens * size_ * bits_ / 8; }
  size_t groups() const { return kPageTokens * size_ / kScaleGroup; }
  // Number i of a group in [64, size].
  size_t at(size_t group, size_t i) const {
    return keys_ ? (group / size_ * kScaleGroup + i) * size_ + group % size_
                 : group * kScaleGroup + i;
  }

  size_t size_, bits_;
  bool keys_;
};

// A rotation, then blocks of 32 with a scale each: what llama.cpp does with q4_0 caches.
class HadamardPart : public PartCodec {
 public:
  HadamardPart(size_t size, uint64_t seed) : rotation_(size, seed) {}
  size_t bytes() const override { return kPageTokens * rotation_.size() / kScaleGroup * 18; }
  void encode(const float* x, uint8_t* coded) const override {
    std::vector<float> rotated(rotation_.size());
    for (size_t t = 0; t < kPageTokens; ++t) {
      rotation_.apply(x + t * rotation_.size(), rotated.data());
      for (size_t d = 0; d < rotation_.size(); d += kScaleGroup, coded += 18) {
        encode_block(rotated.data() + d, coded);
      }
    }
  }
  void decode(const uint8_t* coded, float* out) const override {
    for (size_t t = 0; t < kPageTokens; ++t, out += rotation_.size()) {
      for (size_t d = 0; d < rotation_.size(); d += kScaleGroup, coded += 18) {
        const float scale = get_half_scale(coded);
        for (size_t i = 0; i < kScaleGroup; ++i) {
          const int code = coded[2 + i % 16] >> i / 16 * 4 & 15;
          out[d + i] = scale * static_cast<float>(code - 8);
        }
      }
      rotation_.invert(out, out);
    }
  }

 private:
  static void encode_block(const float* x, uint8_t* coded) {
    float largest = 0.0f;  // with its sign
    bool finite = true;
    for (size_t i = 0; i < kScaleGroup; ++i) {
      finite = finite && std::isfinite(x[i]);
      if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
    }
    put_half(finite ? largest / -8.0f : NAN, coded);
    const float scale = get_half_scale(coded);
    std::memset(coded + 2, 0, 16);
    for (size_t i = 0; i < kScaleGroup; ++i) {
      const float steps = finite && scale != 0.0f ? x[i] / scale + 8.0f : 8.0f;
      const auto code = static_cast<unsigned>(std::clamp(std::nearbyint(steps), 0.0f, 15.0f));
      uint8_t& byte = coded[2 + i % 16];
      byte = static_cast<uint8_t>(byte | code << i / 16 * 4);
    }
  }

  Rotation rotation_;
};

// PolarQuant (arXiv 2502.02617): a rotated vector in blocks of 16, each as one radius and 15
// angles: pairs of numbers become a radius and an angle, pairs of radii again, four times. Angles
// of pairs of numbers are even over the circle; the others lie between 0 and pi / 2 with a density
// proportional to sin(2 x)^(2^level - 1), and have the levels that suit it.
class PolarPart : public PartCodec {
 public:
  PolarPart(size_t size, size_t first_bits, uint64_t seed)
      : rotation_(size, seed), first_bits_(first_bits) {
    for (size_t level = 1; level < kLevels; ++level) books_.push_back(angle_levels(level));
  }
  size_t bytes() const override { return kPageTokens * rotation_.size() / kBlock * block_bytes(); }
  void encode(const float* x, uint8_t* coded) const override {
    std::vector<float> rotated(rotation_.size());
    for (size_t t = 0; t < kPageTokens; ++t) {
      rotation_.apply(x + t * rotation_.size(), rotated.data());
      for (size_t d = 0; d < rotation_.size(); d += kBlock, coded += block_bytes()) {
        encode_block(rotated.data() + d, coded);
      }
    }
  }
  void decode(const uint8_t* coded, float* out) const override {
    for (size_t t = 0; t < kPageTokens; ++t, out += rotation_.size()) {
      for (size_t d = 0; d < rotation_.size(); d += kBlock, coded += block_bytes()) {
        decode_block(coded, out + d);
      }
      rotation_.invert(out, out);
    }
  }

 private:
  static constexpr size_t kBlock = 16;
  static constexpr size_t kLevels = 4;
  static constexpr size_t kLaterBits = 2;
  static constexpr size_t kLaterAngles = 7;

  size_t first_bytes() const { return kBlock / 2 * first_bits_ / 8; }
  size_t block_bytes() const { return 2 + first_bytes() + 2; }

  // Lloyd's iteration over a fine grid.
  static std::vector<double> angle_levels(size_t level) {
    constexpr size_t kGrid = 4096;
    constexpr size_t kRounds = 200;
    const double half_turn = std::numbers::pi / 2;
    const double power = static_cast<double>((size_t{1} << level) - 1);
    std::vector<double> levels;
    for (size_t i = 0; i < 4; ++i) levels.push_back(half_turn * (static_cast<double>(i) + 0.5) / 4);
    for (size_t round = 0; round < kRounds; ++round) {
      double mass[4] = {};
      double moment[4] = {};
      for (size_t i = 0; i < kGrid; ++i) {
        const double angle = half_turn * (static_cast<double>(i) + 0.5) / kGrid;
        const double weight = std::pow(std::sin(2 * angle), power);
        const size_t at = nearest(levels, angle);
        mass[at] += weight;
        moment[at] += weight * angle;
      }
      for (size_t i = 0; i < 4; ++i) levels[i] = moment[i] / mass[i];
    }
    return levels;
  }
  static size_t nearest(const std::vector<double>& levels, double angle) {
    size_t best = 0;
    for (size_t i = 1; i < levels.size(); ++i) {
      if (std::fabs(levels[i] - angle) < std::fabs(levels[best] - angle)) best = i;
    }
    return best;
  }

  void encode_block(const float* x, uint8_t* coded) const {
    double radii[kBlock / 2];
    uint8_t first[kBlock / 2];
    uint8_t later[kLaterAngles + 1] = {};
    const double turn = 2 * std::numbers::pi;
    const double steps = static_cast<double>(size_t{1} << first_bits_);
    bool finite = true;
    for (size_t i = 0; i < kBlock / 2; ++i) {
      const double a = static_cast<double>(x[2 * i]);
      const double b = static_cast<double>(x[2 * i + 1]);
      finite = finite && std::isfinite(a) && std::isfinite(b);
      radii[i] = std::hypot(a, b);
      double part = finite ? std::atan2(b, a) / turn : 0;
      if (part < 0) part += 1;
      first[i] =
          static_cast<uint8_t>(static_cast<size_t>(part * steps) % static_cast<size_t>(steps));
    }
    size_t at = 0;
    for (size_t level = 1; level < kLevels; ++level) {
      for (size_t i = 0; i < kBlock / 2 >> level; ++i) {
        const double a = radii[2 * i];
        const double b = radii[2 * i + 1];
        later[at++] =
            static_cast<uint8_t>(finite ? nearest(books_[level - 1], std::atan2(b, a)) : 0);
        radii[i] = std::hypot(a, b);
      }
    }
    put_half_scale(finite ? static_cast<float>(radii[0]) : NAN, coded);
    pack_codes(first, kBlock / 2, first_bits_, coded + 2);
    pack_codes(later, kLaterAngles + 1, kLaterBits, coded + 2 + first_bytes());
  }

  void decode_block(const uint8_t* coded, float* out) const {
    uint8_t first[kBlock / 2];
    uint8_t later[kLaterAngles + 1];
    unpack_codes(coded + 2, kBlock / 2, first_bits_, first);
    unpack_codes(coded + 2 + first_bytes(), kLaterAngles + 1, kLaterBits, later);
    double radii[kBlock / 2] = {static_cast<double>(get_half_scale(coded))};
    size_t end = kLaterAngles;
    for (size_t level = kLevels - 1; level > 0; --level) {
      const size_t count = kBlock / 2 >> level;
      end -= count;
      for (size_t i = count; i > 0; --i) {  // from the last: radii are replaced in place
        const double angle = books_[level - 1][later[end + i - 1]];
        const double radius = radii[i - 1];
        radii[2 * i - 1] = radius * std::sin(angle);
        radii[2 * i - 2] = radius * std::cos(angle);
      }
    }
    const double steps = static_cast<double>(size_t{1} << first_bits_);
    for (size_t i = 0; i < kBlock / 2; ++i) {
      const double angle = 2 * std::numbers::pi * (static_cast<double>(first[i]) + 0.5) / steps;
      out[2 * i] = static_cast<float>(radii[i] * std::cos(angle));
      out[2 * i + 1] = static_cast<float>(radii[i] * std::sin(angle));
    }
  }

  Rotation rotation_;
  size_t first_bits_;
  std::vector<std::vector<double>> books_;  // of levels 1 to 3
};

// Half floats, as other engines keep them.
class HalfPart : public PartCodec {
 public:
  explicit HalfPart(size_t head_dim) : numbers_(kPageTokens * head_dim) {}
  size_t bytes() const override { return numbers_ * sizeof(uint16_t); }
  void encode(const float* x, uint8_t* coded) const override {
    for (size_t i = 0; i < numbers_; ++i) put_half(x[i], coded + i * sizeof(uint16_t));
  }
  void decode(const uint8_t* coded, float* out) const override {
    for (size_t i = 0; i < numbers_; ++i) out[i] = get_half_scale(coded + i * sizeof(uint16_t));
  }

 private:
  size_t numbers_;
};

}  // namespace

Result<std::unique_ptr<PartCodec>> make_part_codec(const KvCodec& codec, KvPart part,
                                                   size_t head_dim, uint64_t seed) {
  constexpr size_t kAny = 16;  // what pages are padded to
  const bool blocks = codec.coding == KvCoding::kKivi || codec.coding == KvCoding::kHadamard;
  const size_t multiple = blocks ? kScaleGroup : kAny;
  if (head_dim % multiple != 0) {
    return invalid_argument("kv '" + std::string(codec.name) + "' needs heads of a multiple of " +
                            std::to_string(multiple) + " dims; this model's have " +
                            std::to_string(head_dim) + "; q8, turbo4, turbo3 and turbo2 fit any");
  }
  std::unique_ptr<PartCodec> out;
  switch (codec.coding) {
    case KvCoding::kProd:
      out = std::make_unique<VectorPart>(std::make_unique<ProdCodec>(head_dim, codec.bits, seed));
      break;
    case KvCoding::kOutliers:
      out = std::make_unique<OutlierPart>(head_dim, codec.bits, seed);
      break;
    case KvCoding::kKivi:
      out = std::make_unique<KiviPart>(head_dim, codec.bits, part == KvPart::kKeys);
      break;
    case KvCoding::kHadamard:
      out = std::make_unique<HadamardPart>(head_dim, seed);
      break;
    case KvCoding::kHalf:
      out = std::make_unique<HalfPart>(head_dim);
      break;
    case KvCoding::kPolar:
      out = std::make_unique<PolarPart>(head_dim, codec.bits, seed);
      break;
    default:
      CHECK(false);
  }
  return out;
}

}  // namespace kvikk
