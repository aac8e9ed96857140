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

// The vectors of a part lie in its units (coded_page.h): of keys 4 dims x 16 tokens, of values
// 16 dims x 4 tokens.
void put_vector(KvPart part, const CodedLayout& layout, size_t token, const uint8_t* codes,
                float scale, uint8_t* out) {
  const bool keys = part == KvPart::kKeys;
  const size_t tokens = keys ? 16 : 4;  // of a unit
  const size_t dims = 64 / tokens;
  const size_t block_bytes = keys ? coded_key_block_bytes(layout) : coded_value_row_bytes(layout);
  uint8_t* run = out + token / tokens * block_bytes;
  const size_t t = token % tokens;
  for (const CodedSegment& s : layout.segments) {
    for (size_t d = 0; s.bits != 0 && d < s.dims; ++d) {
      const size_t lane = keys ? t * dims + d % dims : d % dims * tokens + t;
      put_code(run, s.bits, s.dims / dims, d / dims, lane, codes[d]);
    }
    codes += s.dims;
    run += coded_run_bytes(s.bits, s.dims / dims);
  }
  put_half_scale(scale, out + kPageTokens / tokens * block_bytes + 2 * token);
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

CodedLayout even_layout(const KvCodec& codec, size_t width, const Codebook* book) {
  CodedLayout layout;
  layout.segments[0] = {codec.bits, static_cast<uint32_t>(width)};
  for (size_t i = 0; book != nullptr && i < 16; ++i) {
    layout.levels[codec.bits][i] = book->levels[i % book->levels.size()];
  }
  fill_level_bytes(layout);
  return layout;
}

void transpose(size_t size, std::vector<float>& matrix) {
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < i; ++j) std::swap(matrix[i * size + j], matrix[j * size + i]);
  }
}

// [count][cosines, sines][pairs] of (n * step + offset) * f.
std::vector<float> angles_of(const KvRope& rope, size_t count, size_t step, double offset) {
  const size_t pairs = rope.frequencies.size();
  std::vector<float> out(count * 2 * pairs);
  for (size_t n = 0; n < count; ++n) {
    for (size_t i = 0; i < pairs; ++i) {
      const double position = static_cast<double>(n * step) + offset;
      const double angle = position * static_cast<double>(rope.frequencies[i]);
      out[n * 2 * pairs + i] = static_cast<float>(std::cos(angle));
      out[n * 2 * pairs + pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
  return out;
}

// PositionTerm::powers: a cosine is 1 - x^2 / 2! + x^4 / 4!, a sine x - x^3 / 3! + x^5 / 5!.
std::vector<float> powers_of(const KvRope& rope) {
  const size_t pairs = rope.frequencies.size();
  std::vector<float> out(kPositionPowers * pairs);
  for (size_t i = 0; i < pairs; ++i) {
    double power = 1;
    for (size_t k = 0; k < kPositionPowers; ++k) {
      out[k * pairs + i] = static_cast<float>(k % 4 < 2 ? power : -power);
      power *= static_cast<double>(rope.frequencies[i]) / static_cast<double>(k + 1);
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

void load_exact_value(const uint8_t* values, KvFormat format, size_t token, size_t size,
                      size_t width, float* out) {
  for (size_t d = 0; d < size; ++d) {
    const size_t at = format == KvFormat::kF32
                          ? token * width + d
                          : token / 2 * 2 * width + d / 16 * 32 + d % 16 * 2 + token % 2;
    out[d] = load(values, format, at);
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
  const auto book = [&](const KvCodec& codec) -> const Codebook* {
    if (codec.bits == 8) return nullptr;
    Codebook& found = books_[codec.bits];
    if (found.bits == 0) found = make_codebook(size, codec.bits);
    return &found;
  };
  key_rotation_.emplace(size, options_.seed);
  value_rotation_.emplace(size, options_.seed + 1);
  TRY(plan_parts());
  if (key_part_ == nullptr) key_layout_ = even_layout(keys, width_, book(keys));
  if (value_part_ == nullptr) value_layout_ = even_layout(values, width_, book(values));
  const auto lines = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  key_bytes_ = key_part_ != nullptr ? lines(key_part_->bytes()) : coded_key_bytes(key_layout_);
  value_bytes_ =
      value_part_ != nullptr ? lines(value_part_->bytes()) : coded_value_bytes(value_layout_);
  plan_conditioning();
  return ok_status();
}

Status KvCoder::plan_parts() {
  const KvCodec& keys = *options_.choice.keys;
  const KvCodec& values = *options_.choice.values;
  if (is_reference(keys.coding)) {
    TRY_ASSIGN(key_part_, make_part_codec(keys, KvPart::kKeys, options_.head_dim, options_.seed));
  }
  if (is_reference(values.coding) && values.coding != KvCoding::kProd) {
    TRY_ASSIGN(value_part_,
               make_part_codec(values, KvPart::kValues, options_.head_dim, options_.seed + 1));
  }
  return ok_status();
}

std::shared_ptr<const KvCoder> KvCoder::conditioned(std::vector<KeyConditioning> all) const {
  CHECK(!conditioned());
  std::shared_ptr<KvCoder> coder(new KvCoder(*this));
  coder->options_.conditioning = std::move(all);
  coder->plan_conditioning();
  return coder;
}

void KvCoder::plan_conditioning() {
  CHECK(!conditioned() || options_.conditioning.size() == options_.layers * options_.kv_heads);
  make_identity();
  bool mean = false;
  for (const KeyConditioning& c : options_.conditioning) mean = mean || !c.mean.empty();
  plan_pairs();
  extra_ = pairs_max_ > 0 || mean ? (1 + 2 * pairs_max_ + 15) / 16 * 16 : 0;
  plan_fitted();
}

void KvCoder::plan_fitted() {
  fitted_ = options_.choice.keys->coding == KvCoding::kFitted && conditioned();
  for (const KeyConditioning& c : options_.conditioning) fitted_ = fitted_ && !c.forward.empty();
  if (!fitted_) return;
  fitted_books_.resize(kCodebookBitsMax + 1);
  for (size_t bits : {2, 3, 4}) fitted_books_[bits] = make_codebook(1 << 20, bits);
  for (KeyConditioning& c : options_.conditioning) {
    transpose(options_.head_dim, c.forward);
    transpose(options_.head_dim, c.backward);
    c.layout.step = kFittedReach / 127.0f;
    for (size_t bits : {2, 3, 4}) {
      const std::vector<float>& levels = fitted_books_[bits].levels;
      for (size_t i = 0; i < 16; ++i) c.layout.levels[bits][i] = levels[i % levels.size()];
    }
    fill_level_bytes(c.layout);
    // The sum of the bits is the same for all heads, so that pages are of one size; a basis that
    // does not use them all leaves room.
    CHECK(coded_key_bytes(c.layout) <= key_bytes_);
  }
}

void KvCoder::plan_pairs() {
  pairs_.clear();
  fast_pairs_.clear();
  pairs_max_ = 0;
  for (size_t i = 0; i < options_.conditioning.size(); ++i) {
    const KeyConditioning& c = options_.conditioning[i];
    const KvRope& rope = options_.ropes[options_.rope_of[i / options_.kv_heads]];
    std::vector<uint32_t> fast;
    std::vector<uint32_t> slow;
    for (uint32_t p = 0; p < rope.frequencies.size() && !c.rope_mean.empty(); ++p) {
      const auto [a, b] = rotary_pair(rope.style, p, rope.frequencies.size());
      if (c.rope_mean[a] == 0.0f && c.rope_mean[b] == 0.0f) continue;
      (rope.frequencies[p] * kPageMiddle <= kSlowAngle ? slow : fast).push_back(p);
    }
    fast_pairs_.push_back(fast.size());
    fast.insert(fast.end(), slow.begin(), slow.end());
    pairs_max_ = std::max(pairs_max_, fast.size());
    pairs_.push_back(std::move(fast));
  }
  tables_.clear();
  if (pairs_max_ == 0) return;
  const double middle = static_cast<double>(kPageMiddle);
  for (const KvRope& rope : options_.ropes) {
    const size_t pages = options_.context / kPageTokens + 1;
    AngleTables tables;
    tables.pages = angles_of(rope, pages, kPageTokens, middle);
    const std::vector<float> token = angles_of(rope, kPageTokens, 1, -middle);
    const size_t rows = 2 * rope.frequencies.size();
    for (size_t at = 0; at < token.size(); ++at) {
      tables.tokens.push_back(token[at % kPageTokens * rows + at / kPageTokens]);
    }
    tables.powers = powers_of(rope);
    tables_.push_back(std::move(tables));
  }
}

void KvCoder::make_identity() {
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
  identity_ = options_.choice.name() + " seed " + std::to_string(options_.seed) + " conditioning " +
              std::to_string(hash);
}

void KvCoder::remove_position(size_t layer, size_t kv_head, size_t page, size_t token,
                              float* key) const {
  const KeyConditioning& c = *conditioning(layer, kv_head);
  const KvRope& rope = rope_of(layer);
  const size_t pairs = rope.frequencies.size();
  for (uint32_t i : pairs_[layer * options_.kv_heads + kv_head]) {
    const AngleTables& tables = tables_[options_.rope_of[layer]];
    const float* turn = tables.pages.data() + page * 2 * pairs;
    const float step_cosine = tables.tokens[i * kPageTokens + token];
    const float step_sine = tables.tokens[(pairs + i) * kPageTokens + token];
    const auto [a, b] = rotary_pair(rope.style, i, pairs);
    const float cosine = turn[i] * step_cosine - turn[pairs + i] * step_sine;
    const float sine = turn[pairs + i] * step_cosine + turn[i] * step_sine;
    key[a] -= c.rope_mean[a] * cosine - c.rope_mean[b] * sine;
    key[b] -= c.rope_mean[a] * sine + c.rope_mean[b] * cosine;
  }
  for (size_t d = 0; d < c.mean.size(); ++d) key[d] -= c.mean[d];
}

// In the basis of `c`: a static deviation for each coordinate, one scale for the vector, chosen so
// that the weighted error (that of the scores) is least.
float KvCoder::code_fitted(const KeyConditioning& c, const float* key, uint8_t* codes) const {
  const size_t size = options_.head_dim;
  double sums[kWidthMax] = {};
  for (size_t d = 0; d < size; ++d) {
    const float* row = c.forward.data() + d * size;
    const double x = static_cast<double>(key[d]);
    for (size_t i = 0; i < size; ++i) sums[i] += static_cast<double>(row[i]) * x;
  }
  float unit[kWidthMax];
  for (size_t i = 0; i < size; ++i) unit[i] = static_cast<float>(sums[i]) / c.deviation[i];
  double squares = 0;
  size_t kept = 0;
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
  const auto code = [&](const KvCodec& codec) {
    return codec.coding == KvCoding::kLargest
               ? code_largest(x, size, codes)
               : quantize_rotated(books_[codec.bits], ScaleRule::kUnbiased, x, size, codes);
  };
  std::vector<float> key_page(key_part_ != nullptr ? kPageTokens * size : 0);
  std::vector<float> value_page(value_part_ != nullptr ? kPageTokens * size : 0);
  for (size_t token = 0; token < kPageTokens; ++token) {
    load_exact_key(exact, format, token, size, width_, x);
    if (c != nullptr) remove_position(layer, kv_head, page, token, x);
    float scale = 0.0f;
    if (key_part_ != nullptr) {
      std::copy_n(x, size, key_page.data() + token * size);
    } else if (fitted_) {
      scale = code_fitted(*c, x, codes);
    } else {
      if (c != nullptr && !c->balance.empty()) {
        for (size_t d = 0; d < size; ++d) x[d] /= c->balance[d];
      }
      key_rotation_->apply(x, x);
      scale = code(*options_.choice.keys);
    }
    if (key_part_ == nullptr) put_vector(KvPart::kKeys, layout, token, codes, scale, coded);
    load_exact_value(exact_values, format, token, size, width_, x);
    if (value_part_ != nullptr) {
      std::copy_n(x, size, value_page.data() + token * size);
      continue;
    }
    value_rotation_->apply(x, x);
    scale = code(*options_.choice.values);
    put_vector(KvPart::kValues, value_layout_, token, codes, scale, values);
  }
  if (key_part_ != nullptr) key_part_->encode(key_page.data(), coded);
  if (value_part_ != nullptr) value_part_->encode(value_page.data(), values);
}

void KvCoder::prepare_query(size_t layer, size_t kv_head, const float* query, float* out) const {
  const size_t size = options_.head_dim;
  const KeyConditioning* c = conditioning(layer, kv_head);
  std::fill(out, out + query_floats(), 0.0f);
  if (fitted_) {
    for (size_t d = 0; d < size; ++d) {
      const float* row = c->backward.data() + d * size;
      for (size_t i = 0; i < size; ++i) out[i] += row[i] * query[d];
    }
    for (size_t i = 0; i < size; ++i) out[i] *= c->deviation[i];
  } else if (key_part_ != nullptr) {
    std::copy_n(query, size, out);
  } else {
    for (size_t d = 0; d < size; ++d) {
      out[d] = c != nullptr && !c->balance.empty() ? query[d] * c->balance[d] : query[d];
    }
    key_rotation_->apply(out, out);
  }
  if (c == nullptr) return;
  float* rest = out + width_;
  for (size_t d = 0; d < c->mean.size(); ++d) rest[0] += query[d] * c->mean[d];
  const KvRope& rope = rope_of(layer);
  const std::vector<uint32_t>& pairs = pairs_[layer * options_.kv_heads + kv_head];
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [a, b] = rotary_pair(rope.style, pairs[i], rope.frequencies.size());
    rest[1 + i] = query[a] * c->rope_mean[a] + query[b] * c->rope_mean[b];
    rest[1 + pairs_max_ + i] = query[b] * c->rope_mean[a] - query[a] * c->rope_mean[b];
  }
}

void KvCoder::query_for_page(size_t layer, size_t kv_head, const float* prepared, size_t page,
                             float* out) const {
  std::memcpy(out, prepared, width_ * sizeof(float));
  if (extra_ == 0) return;
  const float* rest = prepared + width_;
  float* to = out + width_;
  std::fill(to, to + extra_, 0.0f);
  to[0] = rest[0];
  if (pairs_max_ == 0) return;
  const float* turn = page_turn(layer, page);
  const size_t table_pairs = rope_of(layer).frequencies.size();
  const std::vector<uint32_t>& pairs = pairs_[layer * options_.kv_heads + kv_head];
  for (size_t i = 0; i < pairs.size(); ++i) {
    const float cosine = turn[pairs[i]];
    const float sine = turn[table_pairs + pairs[i]];
    const float a = rest[1 + i];
    const float b = rest[1 + pairs_max_ + i];
    to[1 + i] = a * cosine + b * sine;
    to[1 + pairs_max_ + i] = b * cosine - a * sine;
  }
}

PositionTerm KvCoder::position_term(size_t layer, size_t kv_head) const {
  PositionTerm term;
  if (pairs_max_ == 0) return term;
  const size_t at = layer * options_.kv_heads + kv_head;
  const AngleTables& tables = tables_[options_.rope_of[layer]];
  term.fast = fast_pairs_[at];
  term.slow = pairs_[at].size() - term.fast;
  term.pairs = pairs_[at].data();
  term.table_pairs = rope_of(layer).frequencies.size();
  term.angles = tables.tokens.data();
  term.powers = tables.powers.data();
  return term;
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

void KvCoder::fill_constant_dims(size_t layer, size_t kv_head, float* keys) const {
  if (extra_ == 0) return;
  const size_t table_pairs = rope_of(layer).frequencies.size();
  for (size_t block = 0; block < 4; ++block) {
    float* to = keys + (block * attend_dim() + width_) * 16;
    std::fill(to, to + extra_ * 16, 0.0f);
    std::fill(to, to + 16, 1.0f);
    if (pairs_max_ == 0) continue;
    const float* rows = tables_[options_.rope_of[layer]].tokens.data() + block * 16;
    const std::vector<uint32_t>& pairs = pairs_[layer * options_.kv_heads + kv_head];
    for (size_t i = 0; i < pairs.size(); ++i) {
      std::copy_n(rows + pairs[i] * kPageTokens, 16, to + (1 + i) * 16);
      std::copy_n(rows + (table_pairs + pairs[i]) * kPageTokens, 16,
                  to + (1 + pairs_max_ + i) * 16);
    }
  }
}

void KvCoder::decode(const Kernels& kernels, size_t layer, size_t kv_head, const uint8_t* coded,
                     float* keys, float* values) const {
  if (key_part_ == nullptr) {
    kernels.decode_keys(coded, key_layout(layer, kv_head), attend_dim(), keys);
  } else {
    const size_t size = options_.head_dim;
    std::vector<float> page(kPageTokens * size);
    key_part_->decode(coded, page.data());
    for (size_t t = 0; t < kPageTokens; ++t) {
      float* to = keys + t / 16 * attend_dim() * 16 + t % 16;
      for (size_t d = 0; d < size; ++d) to[d * 16] = page[t * size + d];
    }
  }
  if (value_part_ == nullptr) {
    kernels.decode_values(coded + key_bytes_, value_layout_, values);
  } else {
    value_part_->decode(coded + key_bytes_, values);
  }
}

void KvCoder::restore_values(float* sum) const {
  if (value_part_ == nullptr) value_rotation_->invert(sum, sum);
}

}  // namespace kvikk
