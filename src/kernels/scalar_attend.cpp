// Reference attention over paged keys and values, and the writing of pages.

#include <cmath>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/kernels.h"

namespace kvikk::scalar {

namespace {

struct BF16 {
  static size_t key_index(size_t token, size_t d, size_t dim) {
    return token / 16 * 16 * dim + d / 2 * 32 + token % 16 * 2 + d % 2;
  }
  static size_t value_index(size_t token, size_t d, size_t dim) {
    return token / 2 * 2 * dim + d / 16 * 32 + d % 16 * 2 + token % 2;
  }
  static float load(const uint8_t* part, size_t at) {
    uint16_t bits = 0;
    std::memcpy(&bits, part + 2 * at, 2);
    return bfloat16_to_float(bits);
  }
  static void store(uint8_t* part, size_t at, float value) {
    const uint16_t bits = float_to_bfloat16(value);
    std::memcpy(part + 2 * at, &bits, 2);
  }
  static constexpr KvFormat kFormat = KvFormat::kBF16;
};

struct F32 {
  static size_t key_index(size_t token, size_t d, size_t dim) {
    return token / 16 * 16 * dim + d * 16 + token % 16;
  }
  static size_t value_index(size_t token, size_t d, size_t dim) { return token * dim + d; }
  static float load(const uint8_t* part, size_t at) {
    float f = 0.0f;
    std::memcpy(&f, part + 4 * at, 4);
    return f;
  }
  static void store(uint8_t* part, size_t at, float value) {
    std::memcpy(part + 4 * at, &value, 4);
  }
  static constexpr KvFormat kFormat = KvFormat::kF32;
};

template <class Page>
void store_key(uint8_t* keys, size_t slot, const float* key, size_t dim) {
  for (size_t d = 0; d < dim; ++d) Page::store(keys, Page::key_index(slot, d, dim), key[d]);
}

template <class Page>
void store_value(uint8_t* values, size_t slot, const float* value, size_t dim) {
  for (size_t d = 0; d < dim; ++d) Page::store(values, Page::value_index(slot, d, dim), value[d]);
}

// Scores of one row on one page; -infinity where the row does not see the token. Returns the
// largest.
template <class Page>
float score_page(const AttendArgs& args, size_t row, size_t index, float* scores) {
  const float* query = args.queries + row * args.key_dim;
  float largest = kNothingVisible;
  for (size_t token = 0; token < kPageTokens; ++token) {
    const size_t position = args.first_position + index * kPageTokens + token;
    float score = 0.0f;
    for (size_t d = 0; d < args.key_dim; ++d) {
      score += query[d] * Page::load(args.pages[index], Page::key_index(token, d, args.key_dim));
    }
    if (args.softcap > 0.0f) score = args.softcap * std::tanh(score / args.softcap);
    const bool visible = position >= args.visible_begin[row] && position < args.visible_end[row];
    scores[token] = visible ? score : -INFINITY;
    largest = scores[token] > largest ? scores[token] : largest;
  }
  return largest;
}

template <class Page>
float value_at(const AttendArgs& args, size_t index, size_t token, size_t d) {
  const uint8_t* page = args.pages[index];
  if (args.value_in_key) return Page::load(page, Page::key_index(token, d, args.key_dim));
  return Page::load(page + kv_part_bytes(Page::kFormat, args.key_dim),
                    Page::value_index(token, d, args.value_dim));
}

// Adds one page to the running state of one row.
template <class Page>
void attend_page(const AttendArgs& args, size_t row, size_t index, float* acc) {
  float weight[kPageTokens];
  const float page_max = score_page<Page>(args, row, index, weight);
  if (page_max > args.max[row]) {
    const float rescale = std::exp(args.max[row] - page_max);
    args.max[row] = page_max;
    args.sum[row] *= rescale;
    for (size_t d = 0; d < args.value_dim; ++d) acc[d] *= rescale;
  }
  for (size_t token = 0; token < kPageTokens; ++token) {
    weight[token] = std::exp(weight[token] - args.max[row]);
    args.sum[row] += weight[token];
  }
  for (size_t token = 0; token < kPageTokens; ++token) {
    for (size_t d = 0; d < args.value_dim; ++d) {
      acc[d] += weight[token] * value_at<Page>(args, index, token, d);
    }
  }
}

template <class Page>
void attend(const AttendArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    float* acc = args.acc + row * args.value_dim;
    args.max[row] = kNothingVisible;
    args.sum[row] = 0.0f;
    for (size_t d = 0; d < args.value_dim; ++d) acc[d] = 0.0f;
    for (size_t i = 0; i < args.page_count; ++i) attend_page<Page>(args, row, i, acc);
  }
}

template <class Page>
void fill(Kernels& kernels) {
  constexpr size_t format = static_cast<size_t>(Page::kFormat);
  kernels.store_key[format] = store_key<Page>;
  kernels.store_value[format] = store_value<Page>;
  kernels.attend[format] = attend<Page>;
}

}  // namespace

void fill_attend(Kernels& kernels) {
  fill<BF16>(kernels);
  fill<F32>(kernels);
}

}  // namespace kvikk::scalar
