// Attention over pages: every level against float64, and the law that a row's bits depend on that
// row alone.
//
// Tolerance. All levels compute in float32 on exactly widened keys and values. A score carries an
// error of some 2^-24 x sum |q k| (the order of the sum differs), which the exponential turns into
// the same relative error of a weight; the exponential itself and the sums add some 1e-6. So an
// output may be off by (2e-6 + 2^-22 x sum |q k|) x (weighted mean of |v|). Rounding the keys and
// values to bfloat16, done before, is worth 2^-9: about 1000 times more. AMX has a tolerance of its
// own, below.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "base/buffer.h"
#include "kernels/float16.h"
#include "kernels/kernel_levels.h"

namespace kvikk {
namespace {

constexpr size_t kHeadDims[] = {16, 32, 64, 80, 96, 112, 128, 256};
constexpr KvFormat kFormats[] = {KvFormat::kBF16, KvFormat::kF32};

// Dims of keys and values.
struct Dims {
  Dims(size_t both) : key(both), value(both) {}  // NOLINT: a size is the common case
  Dims(size_t key_dim, size_t value_dim, bool in_key = false)
      : key(key_dim), value(value_dim), value_in_key(in_key) {}
  size_t key;
  size_t value;
  bool value_in_key = false;
};

// A KV head's pages with random tokens in them, and what the pages hold as plain floats.
class Cache {
 public:
  Cache(KvFormat format, Dims dims, size_t pages, unsigned seed, bool biased = false)
      : format_(format),
        dims_(dims),
        page_bytes_(kv_part_bytes(format, dims.key + (dims.value_in_key ? 0 : dims.value))) {
    Result<Buffer> buffer = Buffer::allocate(pages * page_bytes_);
    EXPECT_TRUE(buffer.ok());
    memory_ = std::move(buffer.value());
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    keys_.resize(pages * kPageTokens * dims.key);
    values_.resize(pages * kPageTokens * dims.value);
    for (float& v : values_) v = normal(random);
    for (size_t i = 0; i < keys_.size(); ++i) {
      keys_[i] = normal(random);
      // Keys of a model with a key bias: a few dims are a hundred times the others.
      if (biased && i % dims.key % 13 == 3) keys_[i] += i % dims.key % 2 == 0 ? 100.0f : -250.0f;
    }
    if (dims.value_in_key) {
      for (size_t i = 0; i < values_.size(); ++i) {
        values_[i] = keys_[i / dims.value * dims.key + i % dims.value];
      }
    }
    for (size_t t = 0; t < pages * kPageTokens; ++t) {
      store(t, &keys_[t * dims.key], &values_[t * dims.value]);
    }
    if (format == KvFormat::kBF16) {
      for (float& v : keys_) v = bfloat16_to_float(float_to_bfloat16(v));
      for (float& v : values_) v = bfloat16_to_float(float_to_bfloat16(v));
    }
    for (size_t p = 0; p < pages; ++p) pages_.push_back(page(p));
  }

  // Overwrites a token, in the page and in the floats.
  void set_token(size_t token, float key, float value) {
    const std::vector<float> k(dims_.key, key);
    const std::vector<float> v(dims_.value, value);
    store(token, k.data(), v.data());
    std::copy(k.begin(), k.end(), keys_.begin() + static_cast<ptrdiff_t>(token * dims_.key));
    std::copy(v.begin(), v.end(), values_.begin() + static_cast<ptrdiff_t>(token * dims_.value));
  }

  KvFormat format() const { return format_; }
  Dims dims() const { return dims_; }
  size_t page_count() const { return pages_.size(); }
  const uint8_t* const* pages() const { return pages_.data(); }
  const float* key(size_t token) const { return &keys_[token * dims_.key]; }
  const float* value(size_t token) const { return &values_[token * dims_.value]; }

 private:
  uint8_t* page(size_t index) { return memory_.data() + index * page_bytes_; }
  void store(size_t token, const float* key, const float* value) {
    const Kernels scalar = scalar_kernels();
    const auto format = static_cast<size_t>(format_);
    uint8_t* keys = page(token / kPageTokens);
    scalar.store_key[format](keys, token % kPageTokens, key, dims_.key);
    if (dims_.value_in_key) return;
    scalar.store_value[format](keys + kv_part_bytes(format_, dims_.key), token % kPageTokens, value,
                               dims_.value);
  }

  KvFormat format_;
  Dims dims_;
  size_t page_bytes_;
  Buffer memory_;
  std::vector<const uint8_t*> pages_;
  std::vector<float> keys_;    // [tokens, key dim]
  std::vector<float> values_;  // [tokens, value dim]
};

// Rows with what they see. Positions are relative to `first`, the position of the cache's start.
struct Rows {
  Rows(size_t row_count, size_t dim, size_t first_position, size_t begin, size_t end, unsigned seed,
       bool biased = false)
      : rows(row_count), key_dim(dim), first(first_position) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    // Scores get a standard deviation near 3.
    const float size = 3.0f / std::sqrt(static_cast<float>(dim));
    for (size_t i = 0; i < rows * dim; ++i) queries.push_back(size * normal(random));
    if (biased) {
      for (size_t i = 0; i < rows * dim; ++i) queries[i] *= i % dim % 13 == 3 ? 0.05f : 1.0f;
    }
    visible_begin.assign(rows, static_cast<uint32_t>(first + begin));
    visible_end.assign(rows, static_cast<uint32_t>(first + end));
  }

  size_t rows;
  size_t key_dim;
  size_t first;
  float softcap = 0.0f;
  std::vector<float> queries;  // [rows, key_dim]
  std::vector<uint32_t> visible_begin;
  std::vector<uint32_t> visible_end;
};

struct Partial {
  std::vector<float> max, sum, acc;
};

constexpr float kGuard = 77.0f;

// Runs rows [row, row + count) over the whole cache.
Partial attend(const Kernels& level, const Cache& cache, const Rows& rows, size_t row,
               size_t count) {
  const Dims dims = cache.dims();
  // One float of guard on each side; acc and queries are not aligned to a line.
  Partial out = {std::vector<float>(count + 2, kGuard), std::vector<float>(count + 2, kGuard),
                 std::vector<float>(count * dims.value + 2, kGuard)};
  const size_t scratch_bytes = attend_scratch_bytes(count, std::max(dims.key, dims.value));
  Result<Buffer> scratch = Buffer::allocate(scratch_bytes + 64);
  EXPECT_TRUE(scratch.ok());
  std::memset(scratch.value().data(), 0xff, scratch_bytes);  // NaN: nothing may rely on zeros
  std::memset(scratch.value().data() + scratch_bytes, 0x5a, 64);
  AttendArgs args;
  args.pages = cache.pages();
  args.page_count = cache.page_count();
  args.first_position = rows.first;
  args.key_dim = dims.key;
  args.value_dim = dims.value;
  args.value_in_key = dims.value_in_key;
  args.softcap = rows.softcap;
  args.rows = count;
  args.queries = rows.queries.data() + row * dims.key;
  args.visible_begin = rows.visible_begin.data() + row;
  args.visible_end = rows.visible_end.data() + row;
  args.max = out.max.data() + 1;
  args.sum = out.sum.data() + 1;
  args.acc = out.acc.data() + 1;
  args.scratch = scratch.value().data();
  level.attend[static_cast<size_t>(cache.format())](args);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(scratch.value().data()[scratch_bytes + i], 0x5a);
  for (std::vector<float>* v : {&out.max, &out.sum, &out.acc}) {
    EXPECT_EQ(v->front(), kGuard);
    EXPECT_EQ(v->back(), kGuard);
    v->pop_back();
    v->erase(v->begin());
  }
  return out;
}

// Relative to the sizes of the terms: of a weighted sum of values, and of a score.
struct Tolerance {
  double values = 2e-6;
  double scores = 0x1p-22;
};

// The tile unit multiplies two bfloat16 parts of each query and weight: a rest of 2^-17 stays.
Tolerance tolerance_of(const Kernels& level, KvFormat format) {
  const bool in_parts = std::string(level.level) == "amx" && format == KvFormat::kBF16;
  return in_parts ? Tolerance{1e-5, 0x1p-19} : Tolerance{};
}

// The largest error of a row's output over its tolerance, from a float64 softmax.
double worst_error(const Cache& cache, const Rows& rows, size_t row, const Partial& got,
                   const Tolerance& allowed) {
  const Dims dims = cache.dims();
  const size_t begin = std::max<size_t>(rows.visible_begin[row], rows.first) - rows.first;
  const size_t end = rows.visible_end[row] - rows.first;
  std::vector<double> scores;
  double largest = -1e300;
  double magnitude = 0.0;
  for (size_t t = begin; t < end; ++t) {
    double score = 0.0;
    double terms = 0.0;
    for (size_t d = 0; d < dims.key; ++d) {
      const double term = static_cast<double>(rows.queries[row * dims.key + d]) * cache.key(t)[d];
      score += term;
      terms += std::fabs(term);
    }
    if (rows.softcap > 0.0f) score = rows.softcap * std::tanh(score / rows.softcap);
    scores.push_back(score);
    largest = std::max(largest, score);
    magnitude = std::max(magnitude, terms);
  }
  double sum = 0.0;
  std::vector<double> out(dims.value), size(dims.value);
  for (size_t t = begin; t < end; ++t) {
    const double weight = std::exp(scores[t - begin] - largest);
    sum += weight;
    for (size_t d = 0; d < dims.value; ++d) {
      out[d] += weight * cache.value(t)[d];
      size[d] += weight * std::fabs(cache.value(t)[d]);
    }
  }
  double worst = 0.0;
  for (size_t d = 0; d < dims.value; ++d) {
    const double value = static_cast<double>(got.acc[row * dims.value + d]) / got.sum[row];
    const double tolerance = (allowed.values + allowed.scores * magnitude) * size[d] / sum;
    const double error = std::fabs(value - out[d] / sum) / tolerance;
    worst = std::max(worst, std::isnan(error) ? 1e9 : error);
  }
  return std::max(worst, std::fabs(got.max[row] - largest) / (1e-5 + allowed.scores * magnitude));
}

void expect_close(const Cache& cache, const Rows& rows, const std::string& what) {
  for (const Kernels& level : kernel_levels()) {
    const Partial got = attend(level, cache, rows, 0, rows.rows);
    for (size_t r = 0; r < rows.rows; ++r) {
      ASSERT_LE(worst_error(cache, rows, r, got, tolerance_of(level, cache.format())), 1.0)
          << level.level << " " << what << " row " << r << " of " << rows.rows;
    }
  }
}

bool same_row(const Partial& a, size_t row_a, const Partial& b, size_t row_b, size_t dim) {
  return std::memcmp(&a.max[row_a], &b.max[row_b], 4) == 0 &&
         std::memcmp(&a.sum[row_a], &b.sum[row_b], 4) == 0 &&
         std::memcmp(&a.acc[row_a * dim], &b.acc[row_b * dim], 4 * dim) == 0;
}

TEST(Attend, MatchesFloat64AtEveryHeadSize) {
  for (const KvFormat format : kFormats) {
    for (const size_t head_dim : kHeadDims) {
      for (const size_t pages : {1u, 3u}) {
        const Cache cache(format, head_dim, pages, 11);
        const size_t end = pages * kPageTokens - 5;
        for (const size_t rows : {1u, 4u, 7u, 13u}) {
          expect_close(cache, Rows(rows, head_dim, 128, 0, end, 5),
                       "head_dim " + std::to_string(head_dim));
        }
      }
    }
  }
}

TEST(Attend, MatchesFloat64AtEveryNumberOfRows) {
  for (const KvFormat format : kFormats) {
    const Cache cache(format, 32, 2, 12);
    for (size_t rows = 1; rows <= 70; ++rows) {
      expect_close(cache, Rows(rows, 32, 0, 0, 100, 6), "many rows");
    }
  }
}

TEST(Attend, MatchesFloat64AtEveryNumberOfPages) {
  for (const KvFormat format : kFormats) {
    for (size_t pages = 1; pages <= 20; ++pages) {
      const Cache cache(format, 64, pages, 13);
      expect_close(cache, Rows(3, 64, 64 * 1000, 0, pages * 64, 7), "whole pages");
    }
  }
}

// Keys and values of different sizes; values that are the first dims of the keys.
constexpr size_t kUnlike[][2] = {{16, 32},  {192, 128}, {64, 16},   {48, 576},
                                 {576, 16}, {96, 112},  {576, 512}, {320, 256}};

TEST(Attend, MatchesFloat64WithUnlikeKeysAndValues) {
  for (const KvFormat format : kFormats) {
    for (const auto& [key, value] : kUnlike) {
      for (const bool in_key : {false, true}) {
        if (in_key && value > key) continue;
        const Cache cache(format, Dims(key, value, in_key), 3, 21);
        for (const size_t rows : {1u, 5u, 16u, 33u, 128u}) {
          expect_close(cache, Rows(rows, key, 128, 0, 150, 22),
                       std::to_string(key) + " / " + std::to_string(value));
        }
      }
    }
  }
}

TEST(Attend, ARowAloneIsTheSameWithUnlikeKeysAndValues) {
  for (const KvFormat format : kFormats) {
    for (const bool in_key : {false, true}) {
      const Cache cache(format, Dims(96, 64, in_key), 3, 23);
      Rows rows(40, 96, 0, 0, 190, 24);
      rows.softcap = 30.0f;
      for (const Kernels& level : kernel_levels()) {
        const Partial all = attend(level, cache, rows, 0, 40);
        for (size_t r = 0; r < 40; ++r) {
          ASSERT_TRUE(same_row(attend(level, cache, rows, r, 1), 0, all, r, 64)) << level.level;
        }
      }
    }
  }
}

TEST(Attend, MatchesFloat64UnderASoftCap) {
  for (const KvFormat format : kFormats) {
    for (const size_t head_dim : {48u, 64u, 256u}) {
      const Cache cache(format, head_dim, 4, 25);
      for (const float cap : {0.5f, 5.0f, 50.0f}) {  // all, some, hardly any scores at the cap
        for (const size_t count : {1u, 6u, 13u, 40u}) {
          Rows rows(count, head_dim, 0, 3, 200, 26);
          rows.softcap = cap;
          expect_close(cache, rows, "soft cap " + std::to_string(cap));
        }
      }
    }
  }
}

TEST(Attend, MatchesFloat64WithHugeKeyBiases) {
  for (const KvFormat format : kFormats) {
    for (const size_t head_dim : {64u, 128u}) {
      const Cache cache(format, head_dim, 16, 14, true);
      expect_close(cache, Rows(7, head_dim, 0, 0, 1000, 8, true), "biased keys");
    }
  }
}

TEST(Attend, MatchesFloat64WithPartsVisible) {
  const size_t head_dim = 64;
  for (const KvFormat format : kFormats) {
    const Cache cache(format, head_dim, 4, 15);
    for (const size_t end : {193u, 194u, 207u, 208u, 209u, 255u, 256u}) {
      for (const size_t begin : {0u, 1u, 63u, 64u, 65u, 100u, 127u, 128u, 192u}) {
        Rows rows(13, head_dim, 640, begin, end, 9);
        expect_close(cache, rows, "window");
      }
    }
    // Causal rows of a prefill with a sliding window of 100: each row sees one token more.
    Rows rows(60, head_dim, 640, 0, 0, 9);
    for (size_t r = 0; r < 60; ++r) {
      rows.visible_end[r] = static_cast<uint32_t>(640 + 193 + r);
      rows.visible_begin[r] = rows.visible_end[r] - 100;
    }
    expect_close(cache, rows, "causal window");
  }
}

TEST(Attend, ARowThatSeesNothingYetIsEmpty) {
  for (const KvFormat format : kFormats) {
    const Cache cache(format, 80, 2, 16);
    Rows rows(5, 80, 0, 0, 128, 10);
    rows.visible_begin[1] = 64;                            // from the second page on
    rows.visible_begin[3] = rows.visible_begin[4] = 1000;  // after these pages
    rows.visible_end[3] = rows.visible_end[4] = 2000;
    for (const Kernels& level : kernel_levels()) {
      const Partial got = attend(level, cache, rows, 0, 5);
      for (const size_t r : {3u, 4u}) {
        EXPECT_EQ(got.max[r], -1e30f) << level.level;
        EXPECT_EQ(got.sum[r], 0.0f) << level.level;
        for (size_t d = 0; d < 80; ++d) ASSERT_EQ(got.acc[r * 80 + d], 0.0f) << level.level;
      }
      for (const size_t r : {0u, 1u, 2u})
        EXPECT_LE(worst_error(cache, rows, r, got, tolerance_of(level, cache.format())), 1.0);
      for (size_t r = 0; r < 5; ++r) {
        const Partial alone = attend(level, cache, rows, r, 1);
        EXPECT_TRUE(same_row(alone, 0, got, r, 80)) << level.level << " row " << r;
      }
    }
  }
}

TEST(Attend, ARowsBitsDoNotDependOnTheOtherRows) {
  for (const KvFormat format : kFormats) {
    for (const size_t head_dim : kHeadDims) {
      const Cache cache(format, head_dim, 3, 17);
      Rows rows(70, head_dim, 64, 0, 0, 11);
      for (size_t r = 0; r < 70; ++r) {
        rows.visible_begin[r] = static_cast<uint32_t>(64 + (r % 3 == 0 ? r : 0));
        rows.visible_end[r] = static_cast<uint32_t>(64 + 129 + r * 7 % 63);
      }
      for (const Kernels& level : kernel_levels()) {
        std::vector<Partial> alone;
        for (size_t r = 0; r < 70; ++r) alone.push_back(attend(level, cache, rows, r, 1));
        for (size_t count = 2; count <= 70; count += count < 26 ? 1 : 11) {
          for (const size_t first : {size_t{0}, (70 - count) / 2, 70 - count}) {
            const Partial block = attend(level, cache, rows, first, count);
            for (size_t r = 0; r < count; ++r) {
              ASSERT_TRUE(same_row(alone[first + r], 0, block, r, head_dim))
                  << level.level << " head_dim " << head_dim << " row " << r << " of " << count;
            }
          }
        }
      }
    }
  }
}

TEST(Attend, InvisibleTokensChangeNothing) {
  for (const KvFormat format : kFormats) {
    Cache cache(format, 64, 2, 18);
    const Rows rows(9, 64, 0, 3, 90, 12);
    for (const Kernels& level : kernel_levels()) {
      cache.set_token(2, 0.0f, 0.0f);
      cache.set_token(90, 0.0f, 0.0f);
      cache.set_token(127, 0.0f, 0.0f);
      const Partial before = attend(level, cache, rows, 0, 9);
      cache.set_token(2, 1e30f, -1e30f);
      cache.set_token(90, 1e30f, 3e38f);
      cache.set_token(127, -1e30f, 3e38f);
      const Partial after = attend(level, cache, rows, 0, 9);
      for (size_t r = 0; r < 9; ++r) {
        EXPECT_TRUE(same_row(before, r, after, r, 64)) << level.level << " row " << r;
      }
    }
  }
}

TEST(Attend, NotANumberStaysVisible) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const KvFormat format : kFormats) {
    for (const Kernels& level : kernel_levels()) {
      Cache cache(format, 64, 2, 19);
      Rows rows(9, 64, 0, 0, 100, 13);
      rows.queries[4 * 64 + 17] = kNaN;
      Partial got = attend(level, cache, rows, 0, 9);
      EXPECT_TRUE(std::isnan(got.sum[4])) << level.level;
      EXPECT_LE(worst_error(cache, rows, 3, got, tolerance_of(level, cache.format())), 1.0)
          << level.level;
      for (const size_t token : {0u, 63u, 70u}) {  // a bad key shows in every row's sum
        Cache bad(format, 64, 2, 19);
        bad.set_token(token, kNaN, 1.0f);
        got = attend(level, bad, rows, 0, 9);
        for (size_t r = 0; r < 9; ++r) EXPECT_TRUE(std::isnan(got.sum[r])) << level.level;
      }
      cache.set_token(31, 0.1f, kNaN);  // a bad value shows in every row's output
      got = attend(level, cache, rows, 0, 9);
      for (size_t r = 0; r < 9; ++r) EXPECT_TRUE(std::isnan(got.acc[r * 64 + 5])) << level.level;
      cache.set_token(31, 0.1f, std::numeric_limits<float>::infinity());
      got = attend(level, cache, rows, 0, 9);
      for (size_t r = 0; r < 9; ++r) EXPECT_FALSE(std::isfinite(got.acc[r * 64 + 5]));
    }
  }
}

TEST(Attend, ScoresFarApartGiveOneTokenAllTheWeight) {
  for (const KvFormat format : kFormats) {
    Cache cache(format, 16, 3, 20);
    cache.set_token(5, 50.0f, 1.0f);      // the best until ...
    cache.set_token(130, 1000.0f, 2.5f);  // ... this one, 15,200 above it
    Rows rows(3, 16, 0, 0, 192, 14);
    rows.queries.assign(3 * 16, 1.0f);
    for (const Kernels& level : kernel_levels()) {
      const Partial got = attend(level, cache, rows, 0, 3);
      for (size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(got.max[r], 16000.0f) << level.level;
        EXPECT_EQ(got.sum[r], 1.0f) << level.level;
        for (size_t d = 0; d < 16; ++d) EXPECT_EQ(got.acc[r * 16 + d], 2.5f) << level.level;
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
