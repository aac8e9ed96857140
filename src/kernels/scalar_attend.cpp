// Reference attention over paged keys and values, and the writing of pages.

#include <cmath>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/kernels.h"

namespace kvikk::scalar {

namespace {

constexpr float kNothingVisible = -1e30f;

struct BF16 {
  static float key(const uint8_t* page, size_t token, size_t dim, size_t head_dim) {
    const size_t at = token / 16 * 16 * head_dim + dim / 2 * 32 + token % 16 * 2 + dim % 2;
    return load(page, at);
  }
  static float value(const uint8_t* page, size_t token, size_t dim, size_t head_dim) {
    const size_t at = kPageTokens * head_dim + value_index(token, dim, head_dim);
    return load(page, at);
  }
  static size_t value_index(size_t token, size_t dim, size_t head_dim) {
    return token / 2 * 2 * head_dim + dim / 16 * 32 + dim % 16 * 2 + token % 2;
  }
  static float load(const uint8_t* page, size_t at) {
    uint16_t bits = 0;
    std::memcpy(&bits, page + 2 * at, 2);
    return bfloat16_to_float(bits);
  }
  static void store(uint8_t* page, size_t slot, const float* key, const float* value,
                    size_t head_dim) {
    for (size_t dim = 0; dim < head_dim; ++dim) {
      const size_t key_at = slot / 16 * 16 * head_dim + dim / 2 * 32 + slot % 16 * 2 + dim % 2;
      const size_t value_at = kPageTokens * head_dim + value_index(slot, dim, head_dim);
      const uint16_t k = float_to_bfloat16(key[dim]);
      const uint16_t v = float_to_bfloat16(value[dim]);
      std::memcpy(page + 2 * key_at, &k, 2);
      std::memcpy(page + 2 * value_at, &v, 2);
    }
  }
};

struct F32 {
  static float key(const uint8_t* page, size_t token, size_t dim, size_t head_dim) {
    return load(page, token / 16 * 16 * head_dim + dim * 16 + token % 16);
  }
  static float value(const uint8_t* page, size_t token, size_t dim, size_t head_dim) {
    return load(page, kPageTokens * head_dim + token * head_dim + dim);
  }
  static float load(const uint8_t* page, size_t at) {
    float f = 0.0f;
    std::memcpy(&f, page + 4 * at, 4);
    return f;
  }
  static void store(uint8_t* page, size_t slot, const float* key, const float* value,
                    size_t head_dim) {
    for (size_t dim = 0; dim < head_dim; ++dim) {
      const size_t key_at = slot / 16 * 16 * head_dim + dim * 16 + slot % 16;
      std::memcpy(page + 4 * key_at, key + dim, 4);
      std::memcpy(page + 4 * (kPageTokens * head_dim + slot * head_dim + dim), value + dim, 4);
    }
  }
};

// Adds one page to the running state of one row.
template <class Page>
void attend_page(const AttendArgs& args, size_t row, size_t index, float* acc) {
  const uint8_t* page = args.pages[index];
  const float* query = args.queries + row * args.head_dim;
  const size_t begin = args.visible_begin[row];
  const size_t end = args.visible_end[row];
  float weight[kPageTokens];
  float page_max = kNothingVisible;
  for (size_t token = 0; token < kPageTokens; ++token) {
    const size_t position = args.first_position + index * kPageTokens + token;
    float score = 0.0f;
    for (size_t dim = 0; dim < args.head_dim; ++dim) {
      score += query[dim] * Page::key(page, token, dim, args.head_dim);
    }
    weight[token] = position >= begin && position < end ? score : -INFINITY;
    page_max = weight[token] > page_max ? weight[token] : page_max;
  }
  if (page_max > args.max[row]) {
    const float rescale = std::exp(args.max[row] - page_max);
    args.max[row] = page_max;
    args.sum[row] *= rescale;
    for (size_t dim = 0; dim < args.head_dim; ++dim) acc[dim] *= rescale;
  }
  for (size_t token = 0; token < kPageTokens; ++token) {
    weight[token] = std::exp(weight[token] - args.max[row]);
    args.sum[row] += weight[token];
  }
  for (size_t token = 0; token < kPageTokens; ++token) {
    for (size_t dim = 0; dim < args.head_dim; ++dim) {
      acc[dim] += weight[token] * Page::value(page, token, dim, args.head_dim);
    }
  }
}

template <class Page>
void attend(const AttendArgs& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    float* acc = args.acc + row * args.head_dim;
    args.max[row] = kNothingVisible;
    args.sum[row] = 0.0f;
    for (size_t dim = 0; dim < args.head_dim; ++dim) acc[dim] = 0.0f;
    for (size_t i = 0; i < args.page_count; ++i) attend_page<Page>(args, row, i, acc);
  }
}

}  // namespace

void fill_attend(Kernels& kernels) {
  kernels.store_kv[static_cast<size_t>(KvFormat::kBF16)] = BF16::store;
  kernels.store_kv[static_cast<size_t>(KvFormat::kF32)] = F32::store;
  kernels.attend[static_cast<size_t>(KvFormat::kBF16)] = attend<BF16>;
  kernels.attend[static_cast<size_t>(KvFormat::kF32)] = attend<F32>;
}

}  // namespace kvikk::scalar
