// Attention over coded pages in integers: every level that has it against a float64 softmax over
// the decoded codes, and the same bits for a row whichever rows are beside it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "kernels/coded_page.h"
#include "kernels/kernel_levels.h"

namespace kvikk {
namespace {

struct Case {
  const char* name;
  CodedSegment keys[kCodedSegmentsMax];
  uint32_t value_bits;
  size_t rows;
  size_t fast, slow;  // pairs of the position term
  float softcap;
  bool window;
};

constexpr Case kCases[] = {
    {"turbo4", {{4, 64}}, 4, 7, 0, 0, 0.0f, false},
    {"turbo3", {{3, 128}}, 3, 6, 0, 0, 0.0f, false},
    {"turbo2", {{2, 96}}, 2, 1, 0, 0, 0.0f, true},
    {"q8", {{8, 64}}, 8, 3, 0, 0, 0.0f, false},
    {"q8_turbo4", {{8, 80}}, 4, 13, 0, 0, 0.0f, true},
    {"fit", {{8, 16}, {4, 32}, {3, 16}, {2, 16}, {0, 16}}, 4, 9, 0, 0, 0.0f, false},
    {"constant", {{4, 64}}, 4, 5, 0, 0, 0.0f, false},
    {"position", {{4, 64}}, 4, 7, 5, 9, 0.0f, false},
    {"slow", {{4, 64}}, 3, 2, 0, 11, 0.0f, false},
    {"softcap", {{4, 64}}, 4, 4, 3, 0, 4.0f, true},
    {"many", {{4, 32}}, 4, 64, 4, 4, 0.0f, true},
};

constexpr size_t kPages = 3;
constexpr size_t kFirst = 128;  // position

CodedLayout layout_of(const CodedSegment (&segments)[kCodedSegmentsMax], size_t& dims) {
  CodedLayout layout;
  dims = 0;
  for (size_t i = 0; i < kCodedSegmentsMax; ++i) {
    layout.segments[i] = segments[i];
    dims += segments[i].dims;
  }
  layout.step = 0.01f;
  for (size_t bits : {2u, 3u, 4u}) {
    const size_t count = size_t{1} << bits;
    layout.byte_scale[bits] = 0.02f;
    for (size_t i = 0; i < 16; ++i) {
      const double at = (static_cast<double>(i % count) + 0.5) / static_cast<double>(count);
      layout.level_bytes[bits][i] = static_cast<int8_t>(std::lround(254 * at - 127));
      layout.levels[bits][i] = layout.byte_scale[bits] * layout.level_bytes[bits][i];
    }
  }
  layout.byte_scale[8] = layout.step;
  return layout;
}

class CodedAttend : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    std::mt19937 random(5);
    keys_ = layout_of(c.keys, key_dims_);
    size_t value_dims = 0;
    values_ = layout_of({{c.value_bits, static_cast<uint32_t>(key_dims_)}}, value_dims);
    const size_t key_bytes = coded_key_bytes(keys_);
    for (size_t p = 0; p < kPages; ++p) {
      std::vector<uint8_t> page(key_bytes + coded_value_bytes(values_));
      for (uint8_t& byte : page) byte = static_cast<uint8_t>(random() | 1u);  // 8 bits: never -128
      for (size_t end : {key_bytes, page.size()}) {
        for (size_t t = 0; t < kPageTokens; ++t) {  // 0.25 to 1
          const auto half = static_cast<uint16_t>(0x3400 + random() % 0x800);
          std::memcpy(&page[end - kCodedScaleBytes + 2 * t], &half, sizeof half);
        }
      }
      pages_.push_back(std::move(page));
    }
    for (size_t r = 0; r < c.rows; ++r) {
      int32_t sums[2] = {0, 0};
      for (size_t half = 0; half < 2; ++half) {
        for (size_t d = 0; d < key_dims_; ++d) {
          const bool coded = d < key_dims_ - dims_without_codes();
          const int limit = half == 0 ? 127 : two() ? 64 : 0;
          const int value =
              coded && limit > 0 ? static_cast<int>(random() % (2 * limit + 1)) - limit : 0;
          bytes_.push_back(static_cast<int8_t>(value));
          sums[half] += value;
        }
      }
      sums_.insert(sums_.end(), sums, sums + 2);
      scales_.push_back((two() ? 1.0f / 128 : 1.0f) * 0.02f);
      begin_.push_back(c.window ? static_cast<uint32_t>(kFirst + r * 3) : 0);
      end_.push_back(static_cast<uint32_t>(kFirst + kPages * kPageTokens + 70));
      for (size_t i = 0; i < terms_stride(); ++i) {
        terms_.push_back(static_cast<float>(random() % 2000) * 0.001f - 1.0f);
      }
    }
    const size_t pairs = c.fast + c.slow;
    const size_t table = pairs + 2;  // some are of no head
    for (size_t i = 0; i < table; ++i) {
      // Slow ones last, up to the limit itself.
      const bool slow = i >= c.fast + 1;
      frequencies_.push_back(slow ? kSlowAngle / kPageMiddle / static_cast<float>(i - c.fast)
                                  : 0.9f / static_cast<float>(i + 1));
    }
    for (size_t i = 0; i < pairs; ++i) pairs_.push_back(static_cast<uint32_t>(i + (i >= c.fast)));
    angles_.resize(2 * table * kPageTokens);
    powers_.resize(kPositionPowers * table);
    turns_.assign(kPages, std::vector<float>(2 * table));
    for (size_t i = 0; i < table; ++i) {
      const double f = static_cast<double>(frequencies_[i]);
      for (size_t t = 0; t < kPageTokens; ++t) {
        const double x = static_cast<double>(t) - static_cast<double>(kPageMiddle);
        angles_[i * kPageTokens + t] = static_cast<float>(std::cos(x * f));
        angles_[(table + i) * kPageTokens + t] = static_cast<float>(std::sin(x * f));
      }
      for (size_t p = 0; p < kPages; ++p) {
        const double at = static_cast<double>(kFirst + p * kPageTokens) + 31.5;
        turns_[p][i] = static_cast<float>(std::cos(at * f));
        turns_[p][table + i] = static_cast<float>(std::sin(at * f));
      }
      double power = 1;
      for (size_t k = 0; k < kPositionPowers; ++k) {
        powers_[k * table + i] = static_cast<float>(k % 4 < 2 ? power : -power);
        power *= f / static_cast<double>(k + 1);
      }
    }
    position_ = {c.fast, c.slow, pairs_.data(), table, angles_.data(), powers_.data()};
  }

  bool two() const { return GetParam().keys[0].bits == 8; }
  bool has_terms() const {
    return GetParam().fast + GetParam().slow > 0 || GetParam().name == std::string("constant");
  }
  size_t terms_stride() const { return 3 + 2 * (GetParam().fast + GetParam().slow); }
  size_t dims_without_codes() const {
    size_t dims = 0;
    for (const CodedSegment& s : keys_.segments) dims += s.bits == 0 ? s.dims : 0;
    return dims;
  }

  // acc / sum of rows [first, first + rows).
  std::vector<float> run(const Kernels& level, size_t first, size_t rows) const {
    CodedAttendArgs args;
    std::vector<const uint8_t*> pages;
    std::vector<const float*> turns;
    for (size_t p = 0; p < kPages; ++p) {
      pages.push_back(pages_[p].data());
      turns.push_back(turns_[p].data());
    }
    std::vector<float> max(rows), sum(rows), acc(rows * key_dims_);
    auto scratch = Buffer::allocate(attend_scratch_bytes(rows, key_dims_ + 80));
    EXPECT_TRUE(scratch.ok());
    args.pages = pages.data();
    args.page_count = kPages;
    args.first_position = kFirst;
    args.softcap = GetParam().softcap;
    args.rows = rows;
    args.visible_begin = &begin_[first];
    args.visible_end = &end_[first];
    args.max = max.data();
    args.sum = sum.data();
    args.acc = acc.data();
    args.scratch = scratch->data();
    args.keys = &keys_;
    args.values = &values_;
    args.value_offset = coded_key_bytes(keys_);
    args.query_bytes = &bytes_[first * 2 * key_dims_];
    args.two_halves = two();
    args.query_sums = &sums_[first * 2];
    args.query_scales = &scales_[first];
    if (has_terms()) {
      args.position = &position_;
      args.terms = &terms_[first * terms_stride()];
      args.terms_stride = terms_stride();
      args.terms_pairs = (terms_stride() - 1) / 2;
      args.turns = turns.data();
    }
    level.attend_coded(args);
    for (size_t i = 0; i < acc.size(); ++i) acc[i] /= sum[i / key_dims_];
    return acc;
  }

  std::vector<double> expected(size_t row) const {
    const Case& c = GetParam();
    const Kernels scalar = scalar_kernels();
    std::vector<double> scores;
    std::vector<float> all_values;
    for (size_t p = 0; p < kPages; ++p) {
      std::vector<float> keys(kPageTokens * key_dims_), values(kPageTokens * key_dims_);
      scalar.decode_keys(pages_[p].data(), keys_, key_dims_, keys.data());
      scalar.decode_values(pages_[p].data() + coded_key_bytes(keys_), values_, values.data());
      all_values.insert(all_values.end(), values.begin(), values.end());
      for (size_t t = 0; t < kPageTokens; ++t) {
        double score = 0;
        size_t d = 0;
        for (const CodedSegment& s : keys_.segments) {
          for (size_t i = 0; i < s.dims && s.bits > 0; ++i, ++d) {
            const double high = bytes_[row * 2 * key_dims_ + d];
            const double low = bytes_[(row * 2 + 1) * key_dims_ + d];
            score += (two() ? high * 128 + low : high) / keys_.byte_scale[s.bits] *
                     static_cast<double>(keys[(t / 16 * key_dims_ + d) * 16 + t % 16]);
          }
        }
        score *= static_cast<double>(scales_[row]);
        const float* terms = &terms_[row * terms_stride()];
        const size_t offset = (terms_stride() - 1) / 2;
        if (has_terms()) score += static_cast<double>(terms[0]);
        for (size_t i = 0; i < pairs_.size(); ++i) {
          const double angle = static_cast<double>(kFirst + p * kPageTokens + t) *
                               static_cast<double>(frequencies_[pairs_[i]]);
          score += static_cast<double>(terms[1 + i]) * std::cos(angle) +
                   static_cast<double>(terms[1 + offset + i]) * std::sin(angle);
        }
        const double cap = static_cast<double>(c.softcap);
        if (cap > 0) score = cap * std::tanh(score / cap);
        const size_t at = kFirst + p * kPageTokens + t;
        scores.push_back(at >= begin_[row] && at < end_[row] ? score : -INFINITY);
      }
    }
    double largest = -INFINITY;
    for (double score : scores) largest = std::max(largest, score);
    double sum = 0;
    std::vector<double> out(key_dims_);
    for (size_t t = 0; t < scores.size(); ++t) {
      const double weight = std::exp(scores[t] - largest);
      sum += weight;
      for (size_t d = 0; d < key_dims_; ++d) {
        out[d] += weight * static_cast<double>(all_values[t * key_dims_ + d]);
      }
    }
    for (double& x : out) x /= sum;
    return out;
  }

  CodedLayout keys_, values_;
  size_t key_dims_ = 0;
  std::vector<std::vector<uint8_t>> pages_;
  std::vector<int8_t> bytes_;
  std::vector<int32_t> sums_;
  std::vector<float> scales_, terms_;
  std::vector<uint32_t> begin_, end_, pairs_;
  std::vector<float> frequencies_, angles_, powers_;
  std::vector<std::vector<float>> turns_;
  PositionTerm position_;
};

TEST_P(CodedAttend, AgreesWithFloat64) {
  for (const Kernels& level : kernel_levels()) {
    if (level.attend_coded == nullptr) continue;
    const std::vector<float> got = run(level, 0, GetParam().rows);
    for (size_t row = 0; row<GetParam().rows; row += GetParam().rows> 16 ? 7 : 1) {
      const std::vector<double> want = expected(row);
      for (size_t d = 0; d < key_dims_; ++d) {
        // Weights have 7 or 8 bits of a page's largest; values are up to 2.5.
        ASSERT_NEAR(static_cast<double>(got[row * key_dims_ + d]), want[d], 0.02)
            << level.level << " row " << row << " dim " << d;
      }
    }
  }
}

TEST_P(CodedAttend, ARowDoesNotDependOnItsNeighbours) {
  for (const Kernels& level : kernel_levels()) {
    if (level.attend_coded == nullptr) continue;
    const std::vector<float> whole = run(level, 0, GetParam().rows);
    for (size_t count : {size_t{1}, size_t{2}, size_t{5}}) {
      for (size_t first = 0; first + count <= GetParam().rows; first += count) {
        const std::vector<float> part = run(level, first, count);
        ASSERT_EQ(std::memcmp(part.data(), &whole[first * key_dims_], part.size() * sizeof(float)),
                  0)
            << level.level << " rows " << first << " + " << count;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CodedAttend, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kvikk
