#include "kv/coder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/half_scale.h"
#include "codec/vector_codec.h"
#include "kv/page_pool.h"

namespace kvikk {

namespace {

constexpr size_t kWidthMax = (kKvDimMax + 15) / 16 * 16;
// The largest code of 8 bits in a fitted basis is this many deviations.
constexpr float kFittedReach = 5.0f;

float load(const uint8_t* part, KvFormat format, size_t at) {
  if (format == KvFormat::kF32) {
    float value = 0.0f;
    std::memcpy(&value, part + 4 * at, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, part + 2 * at, sizeof bits);
  return bfloat16_to_float(bits);
}

void load_value(const uint8_t* values, KvFormat format, size_t token, size_t size, size_t width,
                float* out) {
  for (size_t d = 0; d < size; ++d) {
    const size_t at = format == KvFormat::kF32
                          ? token * width + d
                          : token / 2 * 2 * width + d / 16 * 32 + d % 16 * 2 + token % 2;
    out[d] = load(values, format, at);
  }
}

void put_code(uint8_t* run, size_t bits, size_t units, size_t unit, size_t lane, unsigned code) {
  const auto put = [&](size_t byte, size_t shift, unsigned value) {
    run[byte] = static_cast<uint8_t>(run[byte] | value << shift);
  };
  switch (bits) {
    case 8:
      return put(unit * 64 + lane, 0, code);
    case 4:
      return put(unit / 2 * 64 + lane, unit % 2 * 4, code);
    default:
      put(unit / 4 * 64 + lane, unit % 4 * 2, code & 3u);
      if (bits == 3) put(64 * ((units + 3) / 4) + unit * 8 + lane / 8, lane % 8, code >> 2);
  }
}

void put_scale(uint8_t* scales, size_t token, float scale) {
  const uint16_t half = scale_to_half(scale);
  std::memcpy(scales + 2 * token, &half, sizeof half);
}

void put_key(const CodedLayout& layout, size_t token, const uint8_t* codes, float scale,
             uint8_t* part) {
  const size_t block_bytes = coded_key_block_bytes(layout);
  uint8_t* run = part + token / 16 * block_bytes;
  for (const CodedSegment& s : layout.segments) {
    for (size_t d = 0; s.bits != 0 && d < s.dims; ++d) {
      put_code(run, s.bits, s.dims / 4, d / 4, token % 16 * 4 + d % 4, codes[d]);
    }
    codes += s.dims;
    run += coded_run_bytes(s.bits, s.dims / 4);
  }
  put_scale(part + 4 * block_bytes, token, scale);
}

void put_value(const CodedLayout& layout, size_t token, const uint8_t* codes, float scale,
               uint8_t* part) {
  const size_t row_bytes = coded_value_row_bytes(layout);
  uint8_t* run = part + token / 4 * row_bytes;
  for (const CodedSegment& s : layout.segments) {
    for (size_t d = 0; s.bits != 0 && d < s.dims; ++d) {
      put_code(run, s.bits, s.dims / 16, d / 16, d % 16 * 4 + token % 4, codes[d]);
    }
    codes += s.dims;
    run += coded_run_bytes(s.bits, s.dims / 16);
  }
  put_scale(part + 16 * row_bytes, token, scale);
}

// Even steps: code 128 is zero.
float code_largest(const float* x, size_t size, uint8_t* codes) {
  float largest = 0.0f;
  bool finite = true;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float scale = half_to_float(scale_to_half(largest / 127.0f));
  for (size_t i = 0; i < size; ++i) {
    const float steps = finite && scale > 0.0f ? x[i] / scale : 0.0f;
    codes[i] = static_cast<uint8_t>(128.0f + std::nearbyint(std::clamp(steps, -127.0f, 127.0f)));
  }
  return finite ? scale : NAN;
}

// Levels as bytes, the largest 127.
void fill_level_bytes(CodedLayout& layout) {
  for (size_t bits : {2, 3, 4}) {
    float largest = 0.0f;
    for (float level : layout.levels[bits]) largest = std::max(largest, std::fabs(level));
    if (largest == 0.0f) continue;
    layout.byte_scale[bits] = largest / 127.0f;
    for (size_t i = 0; i < 16; ++i) {
      layout.level_bytes[bits][i] =
          static_cast<int8_t>(std::nearbyint(layout.levels[bits][i] / layout.byte_scale[bits]));
    }
  }
  layout.byte_scale[8] = layout.step;
}

CodedLayout even_layout(const KvCodec& codec, size_t width, const Codebook& book) {
  CodedLayout layout;
  layout.segments[0] = {codec.bits, static_cast<uint32_t>(width)};
  if (codec.bits < 8) {
    for (size_t i = 0; i < 16; ++i) {
      layout.levels[codec.bits][i] = book.levels[i % book.levels.size()];
    }
  }
  fill_level_bytes(layout);
  return layout;
}

// [count][cosines, sines][width] of n * step * f.
std::vector<float> angles_of(const KvRope& rope, size_t count, size_t step, size_t width) {
  std::vector<float> out(count * 2 * width);
  const size_t pairs = std::min(rope.frequencies.size(), width);
  for (size_t n = 0; n < count; ++n) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(n * step) * static_cast<double>(rope.frequencies[i]);
      out[n * 2 * width + i] = static_cast<float>(std::cos(angle));
      out[n * 2 * width + width + i] = static_cast<float>(std::sin(angle));
    }
  }
  return out;
}

}  // namespace

void load_exact_key(const uint8_t* keys, KvFormat format, size_t token, size_t size, size_t width,
                    float* out) {
  const size_t block = token / 16 * 16 * width;
  for (size_t d = 0; d < size; ++d) {
    const size_t at = format == KvFormat::kF32 ? block + d * 16 + token % 16
                                               : block + d / 2 * 32 + token % 16 * 2 + d % 2;
    out[d] = load(keys, format, at);
  }
}

KvCoder::KvCoder(KvCoderOptions options) : options_(std::move(options)) {}

Result<std::shared_ptr<const KvCoder>> KvCoder::create(KvCoderOptions options) {
  CHECK(options.choice.coded());
  CHECK(options.rope_of.size() == options.layers);
  CHECK(options.head_dim <= kKvDimMax);
  std::shared_ptr<KvCoder> coder(new KvCoder(std::move(options)));
  TRY(coder->plan());
  return std::shared_ptr<const KvCoder>(std::move(coder));
}

Status KvCoder::plan() {
  const KvCodec& keys = *options_.choice.keys;
  const KvCodec& values = *options_.choice.values;
  const size_t size = options_.head_dim;
  if (size < 4) {
    return invalid_argument("kv '" + options_.choice.name() + "' needs heads of at least 4 dims");
  }
  if (keys.coding == KvCoding::kFitted && size % 16 != 0) {
    return invalid_argument("kv '" + options_.choice.name() + "' needs heads of a multiple of 16 " +
                            "dims; this model's have " + std::to_string(size) +
                            "; q8, turbo4, turbo3 and turbo2 fit any size");
  }
  width_ = (size + 15) / 16 * 16;
  // A book of the sphere for up to 4 bits; 8-bit codes have even steps.
  const auto book = [&](const KvCodec& codec) { return make_codebook(size, codec.bits); };
  key_book_ = book(keys);
  value_book_ = book(values);
  key_rotation_.emplace(size, options_.seed);
  value_rotation_.emplace(size, options_.seed + 1);
  key_layout_ = even_layout(keys, width_, key_book_);
  value_layout_ = even_layout(values, width_, value_book_);
  key_bytes_ = coded_key_bytes(key_layout_);
  // The sum of the bits is the same for all heads, so that pages are of one size; a basis that does
  // not use them all leaves room.
  fitted_ = keys.coding == KvCoding::kFitted && conditioned();
  for (const KeyConditioning& c : options_.conditioning) fitted_ = fitted_ && !c.forward.empty();
  bool mean = false;
  for (KeyConditioning& c : options_.conditioning) {
    if (!c.rope_mean.empty()) {
      for (const KvRope& rope : options_.ropes) {
        pairs_max_ = std::max(pairs_max_, rope.frequencies.size());
      }
    }
    mean = mean || !c.mean.empty();
    if (fitted_) CHECK(coded_key_bytes(c.layout) <= key_bytes_);
  }
  if (fitted_) {
    for (size_t bits : {2, 3, 4}) {
      fitted_books_.resize(bits + 1);
      fitted_books_[bits] = make_codebook(1 << 20, bits);
    }
    for (KeyConditioning& c : options_.conditioning) {
      c.layout.step = kFittedReach / 127.0f;
      for (size_t bits : {2, 3, 4}) {
        const std::vector<float>& levels = fitted_books_[bits].levels;
        for (size_t i = 0; i < 16; ++i) c.layout.levels[bits][i] = levels[i % levels.size()];
      }
      fill_level_bytes(c.layout);
    }
  }
  if (pairs_max_ > 0 || mean) extra_ = (1 + 2 * pairs_max_ + 15) / 16 * 16;
  const size_t pages = pairs_max_ > 0 ? options_.context / kPageTokens + 1 : 0;
  for (const KvRope& rope : options_.ropes) {
    page_angles_.push_back(angles_of(rope, pages, kPageTokens, pairs_max_));
    token_angles_.push_back(angles_of(rope, kPageTokens, 1, pairs_max_));
    const std::vector<float>& token = token_angles_.back();
    std::vector<float> rows(token.size());
    for (size_t at = 0; at < rows.size(); ++at) {
      rows[at] = token[at % kPageTokens * 2 * pairs_max_ + at / kPageTokens];
    }
    angle_rows_.push_back(std::move(rows));
  }
  for (size_t i = 0; i < options_.conditioning.size(); ++i) {
    const KeyConditioning& c = options_.conditioning[i];
    const KvRope& rope = options_.ropes[options_.rope_of[i / options_.kv_heads]];
    pairs_.emplace_back();
    for (uint32_t p = 0; p < rope.frequencies.size() && !c.rope_mean.empty(); ++p) {
      const auto [a, b] = rotary_pair(rope.style, p, rope.frequencies.size());
      if (c.rope_mean[a] != 0.0f || c.rope_mean[b] != 0.0f) pairs_.back().push_back(p);
    }
  }
  return ok_status();
}

std::string KvCoder::identity() const {
  // What conditioning changes shows in a sum over its bits.
  uint64_t hash = 1469598103934665603u;
  const auto add = [&](const std::vector<float>& values) {
    for (float value : values) {
      hash = (hash ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
    }
    hash = (hash ^ values.size()) * 1099511628211u;
  };
  for (const KeyConditioning& c : options_.conditioning) {
    for (const auto* part : {&c.rope_mean, &c.mean, &c.balance, &c.forward, &c.deviation}) {
      add(*part);
    }
  }
  return options_.choice.name() + " seed " + std::to_string(options_.seed) + " conditioning " +
         std::to_string(hash);
}

void KvCoder::remove_position(size_t layer, size_t page, size_t token, const KeyConditioning& c,
                              float* key) const {
  if (!c.rope_mean.empty()) {
    const size_t rope = options_.rope_of[layer];
    const RopeStyle style = options_.ropes[rope].style;
    const size_t pairs = options_.ropes[rope].frequencies.size();
    const float* turn = page_angles(rope, page);
    const float* step = token_angles_[rope].data() + token * 2 * pairs_max_;
    for (size_t i = 0; i < pairs; ++i) {
      const auto [a, b] = rotary_pair(style, i, pairs);
      const float cosine = turn[i] * step[i] - turn[pairs_max_ + i] * step[pairs_max_ + i];
      const float sine = turn[pairs_max_ + i] * step[i] + turn[i] * step[pairs_max_ + i];
      key[a] -= c.rope_mean[a] * cosine - c.rope_mean[b] * sine;
      key[b] -= c.rope_mean[a] * sine + c.rope_mean[b] * cosine;
    }
  }
  for (size_t d = 0; d < c.mean.size(); ++d) key[d] -= c.mean[d];
}

// In the basis of `c`: a static deviation for each coordinate, one scale for the vector, chosen so
// that the weighted error (that of the scores) is least.
float KvCoder::code_fitted(const KeyConditioning& c, const float* key, uint8_t* codes) const {
  const size_t size = options_.head_dim;
  float unit[kWidthMax];
  double squares = 0;
  size_t kept = 0;
  for (size_t i = 0; i < size; ++i) {
    double sum = 0;
    for (size_t d = 0; d < size; ++d) sum += static_cast<double>(c.forward[i * size + d]) * key[d];
    unit[i] = static_cast<float>(sum) / c.deviation[i];
  }
  size_t at = 0;
  for (const CodedSegment& s : c.layout.segments) {
    for (size_t d = 0; d < s.dims; ++d, ++at) {
      if (s.bits == 0) continue;
      squares += static_cast<double>(unit[at]) * unit[at];
      ++kept;
    }
  }
  const double root = std::sqrt(squares / static_cast<double>(std::max<size_t>(kept, 1)));
  std::memset(codes, 0, width_);
  if (!std::isfinite(root)) return NAN;
  if (root == 0) return 0.0f;
  // The step that leaves the least weighted error: a key that is far out in a few coordinates wants
  // a coarse one.
  constexpr double kStretches[] = {0.8, 1.0, 1.25, 1.6, 2.2};
  double best = -1;
  float scale = 0.0f;
  uint8_t tried[kWidthMax] = {};
  for (double stretch : kStretches) {
    double products = 0;
    double levels = 0;
    at = 0;
    for (const CodedSegment& s : c.layout.segments) {
      for (size_t d = 0; d < s.dims; ++d, ++at) {
        if (s.bits == 0) continue;
        const auto u = static_cast<float>(unit[at] / (root * stretch));
        const double level = code_coordinate(s.bits, c.layout, u, tried[at]);
        const double weight = static_cast<double>(c.deviation[at]) * c.deviation[at];
        products += weight * level * unit[at];
        levels += weight * level * level;
      }
    }
    if (products * products <= best * levels) continue;
    best = products * products / levels;
    scale = static_cast<float>(products / levels);
    std::memcpy(codes, tried, width_);
  }
  return scale;
}

// Returns the level.
double KvCoder::code_coordinate(uint32_t bits, const CodedLayout& layout, float x,
                                uint8_t& code) const {
  if (bits < 8) {
    code = fitted_books_[bits].code(x);
    return static_cast<double>(fitted_books_[bits].levels[code]);
  }
  const float steps = std::nearbyint(std::clamp(x / layout.step, -127.0f, 127.0f));
  code = static_cast<uint8_t>(steps + 128.0f);
  return static_cast<double>(steps) * static_cast<double>(layout.step);
}

void KvCoder::seal(KvFormat format, const uint8_t* exact, size_t layer, size_t kv_head, size_t page,
                   uint8_t* coded) const {
  const size_t size = options_.head_dim;
  const KeyConditioning* c = conditioning(layer, kv_head);
  const CodedLayout& layout = key_layout(layer, kv_head);
  const uint8_t* exact_values = exact + kv_part_bytes(format, width_);
  uint8_t* values = coded + key_bytes_;
  std::memset(coded, 0, page_bytes());
  float x[kWidthMax];
  uint8_t codes[kWidthMax] = {};
  const auto code = [&](KvCoding coding, const Codebook& book, ScaleRule rule) {
    return coding == KvCoding::kLargest ? code_largest(x, size, codes)
                                        : quantize_rotated(book, rule, x, size, codes);
  };
  for (size_t token = 0; token < kPageTokens; ++token) {
    load_exact_key(exact, format, token, size, width_, x);
    if (c != nullptr) remove_position(layer, page, token, *c, x);
    float scale = 0.0f;
    if (fitted_) {
      scale = code_fitted(*c, x, codes);
    } else {
      if (c != nullptr && !c->balance.empty()) {
        for (size_t d = 0; d < size; ++d) x[d] /= c->balance[d];
      }
      key_rotation_->apply(x, x);
      scale = code(options_.choice.keys->coding, key_book_, ScaleRule::kUnbiased);
    }
    put_key(layout, token, codes, scale, coded);
    load_value(exact_values, format, token, size, width_, x);
    value_rotation_->apply(x, x);
    scale = code(options_.choice.values->coding, value_book_, ScaleRule::kUnbiased);
    put_value(value_layout_, token, codes, scale, values);
  }
}

void KvCoder::prepare_query(size_t layer, size_t kv_head, const float* query, float* out) const {
  const size_t size = options_.head_dim;
  const KeyConditioning* c = conditioning(layer, kv_head);
  std::fill(out, out + query_floats(), 0.0f);
  if (fitted_) {
    for (size_t i = 0; i < size; ++i) {
      float sum = 0.0f;
      for (size_t d = 0; d < size; ++d) sum += c->backward[i * size + d] * query[d];
      out[i] = sum * c->deviation[i];
    }
  } else {
    for (size_t d = 0; d < size; ++d) {
      out[d] = c != nullptr && !c->balance.empty() ? query[d] * c->balance[d] : query[d];
    }
    key_rotation_->apply(out, out);
  }
  if (c == nullptr) return;
  float* rest = out + width_;
  for (size_t d = 0; d < c->mean.size(); ++d) rest[0] += query[d] * c->mean[d];
  if (c->rope_mean.empty()) return;
  const size_t rope = options_.rope_of[layer];
  const size_t pairs = options_.ropes[rope].frequencies.size();
  for (size_t i = 0; i < pairs; ++i) {
    const auto [a, b] = rotary_pair(options_.ropes[rope].style, i, pairs);
    rest[1 + i] = query[a] * c->rope_mean[a] + query[b] * c->rope_mean[b];
    rest[1 + pairs_max_ + i] = query[b] * c->rope_mean[a] - query[a] * c->rope_mean[b];
  }
}

void KvCoder::query_for_page(size_t layer, const float* prepared, size_t page, float* out) const {
  std::memcpy(out, prepared, width_ * sizeof(float));
  if (extra_ == 0) return;
  const float* rest = prepared + width_;
  float* to = out + width_;
  std::fill(to, to + extra_, 0.0f);
  to[0] = rest[0];
  if (pairs_max_ == 0) return;
  const float* turn = page_angles(options_.rope_of[layer], page);
  for (size_t i = 0; i < pairs_max_; ++i) {
    const float a = rest[1 + i];
    const float b = rest[1 + pairs_max_ + i];
    to[1 + i] = a * turn[i] + b * turn[pairs_max_ + i];
    to[1 + pairs_max_ + i] = b * turn[i] - a * turn[pairs_max_ + i];
  }
}

float KvCoder::query_bytes(size_t layer, size_t kv_head, const float* prepared, int8_t* bytes,
                           int32_t* sums) const {
  const CodedLayout& layout = key_layout(layer, kv_head);
  float scaled[kWidthMax];
  float largest = 0.0f;
  bool finite = true;
  size_t at = 0;
  for (const CodedSegment& s : layout.segments) {
    for (size_t d = 0; d < s.dims; ++d, ++at) {
      scaled[at] = prepared[at] * layout.byte_scale[s.bits];
      largest = std::max(largest, std::fabs(scaled[at]));
      finite = finite && std::isfinite(scaled[at]);
    }
  }
  const bool two = two_halves();
  const float steps = two ? 127.0f * 128.0f : 127.0f;
  // A query this small counts as zero: 1 / step would overflow.
  const bool something = finite && largest > kQuantizeSmallest;
  const float inverse = something ? steps / largest : 0.0f;
  sums[0] = sums[1] = 0;
  for (size_t d = 0; d < width_; ++d) {
    const auto code = static_cast<int32_t>(something ? std::nearbyint(scaled[d] * inverse) : 0.0f);
    const int32_t high = two ? (code + 64) >> 7 : code;
    bytes[d] = static_cast<int8_t>(high);
    bytes[width_ + d] = static_cast<int8_t>(two ? code - high * 128 : 0);
    sums[0] += high;
    sums[1] += bytes[width_ + d];
  }
  if (!finite) return NAN;
  return something ? largest / steps : 0.0f;
}

void KvCoder::score_bias(size_t layer, size_t kv_head, const float* prepared, size_t page,
                         float* out) const {
  const float* rest = prepared + width_;
  std::fill(out, out + kPageTokens, rest[0]);
  if (pairs_max_ == 0) return;
  const size_t rope = options_.rope_of[layer];
  const float* turn = page_angles(rope, page);
  const float* rows = angle_rows_[rope].data();
  for (uint32_t p : pairs_[layer * options_.kv_heads + kv_head]) {
    const float a = rest[1 + p];
    const float b = rest[1 + pairs_max_ + p];
    const float cosine = a * turn[p] + b * turn[pairs_max_ + p];
    const float sine = b * turn[p] - a * turn[pairs_max_ + p];
    const float* cosines = rows + p * kPageTokens;
    const float* sines = rows + (pairs_max_ + p) * kPageTokens;
    for (size_t t = 0; t < kPageTokens; ++t) out[t] += cosine * cosines[t] + sine * sines[t];
  }
}

void KvCoder::fill_constant_dims(size_t layer, float* keys) const {
  if (extra_ == 0) return;
  const std::vector<float>& angles = token_angles_[options_.rope_of[layer]];
  for (size_t block = 0; block < 4; ++block) {
    float* to = keys + (block * attend_dim() + width_) * 16;
    std::fill(to, to + extra_ * 16, 0.0f);
    for (size_t t = 0; t < 16; ++t) {
      to[t] = 1.0f;
      for (size_t i = 0; i < 2 * pairs_max_; ++i) {
        to[(1 + i) * 16 + t] = angles[(block * 16 + t) * 2 * pairs_max_ + i];
      }
    }
  }
}

void KvCoder::decode(const Kernels& kernels, size_t layer, size_t kv_head, const uint8_t* coded,
                     float* keys, float* values) const {
  kernels.decode_keys(coded, key_layout(layer, kv_head), attend_dim(), keys);
  kernels.decode_values(coded + key_bytes_, value_layout_, values);
}

void KvCoder::restore_values(float* sum) const { value_rotation_->invert(sum, sum); }

}  // namespace kvikk
