// The search kernels: every level gives the scalar level's bits, and the scalar level gives what
// search.h defines, computed here from codes that were never packed.

#include "kernels/search.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "kernel_levels.h"

namespace kvikk {
namespace {

struct Case {
  std::vector<uint8_t> bits;     // of each group
  std::vector<uint32_t> dims;    // of each group
  std::vector<bool> ends_class;  // the last one does
  size_t blocks = 1;
  size_t queries = 1;
};

// Random codes, packed as search.h says, and everything that a scan reads.
class Scan {
 public:
  explicit Scan(const Case& c) : case_(c), random_(c.blocks * 1000 + c.queries) {
    size_t dims = 0;
    for (size_t g = 0; g < c.bits.size(); ++g) {
      SearchGroup group;
      group.dims = c.dims[g];
      group.bits = c.bits[g];
      group.ends_class = c.ends_class[g];
      group.top = static_cast<uint32_t>(args_.top_stride);
      group.rest = static_cast<uint32_t>(args_.rest_stride);
      args_.top_stride += search_plane_bytes(group.dims, group.bits > 1);
      for (size_t left = group.bits - std::min<size_t>(group.bits, 2); left > 0;
           left -= std::min<size_t>(left, 2)) {
        args_.rest_stride += search_plane_bytes(group.dims, left > 1);
      }
      const size_t period = size_t{1} << std::min<size_t>(group.bits, 6);
      for (size_t i = 0; i < kSearchTableSize; ++i) {
        group.table[i] = i < period ? static_cast<uint8_t>(random_()) : group.table[i % period];
      }
      args_.classes += group.ends_class ? 1 : 0;
      dims += group.dims;
      groups_.push_back(group);
    }
    dims_ = dims;
    args_.query_stride = (dims + 63) / 64 * 64;
    fill();
  }

  std::vector<float> run(const Kernels& kernels) {
    std::vector<float> sums(case_.queries * args_.sum_stride, NAN);
    args_.sums = sums.data();
    kernels.search_scan(args_);
    return sums;
  }

  std::vector<float> expected() const {
    std::vector<float> sums(case_.queries * args_.sum_stride);
    for (size_t q = 0; q < case_.queries; ++q) {
      for (size_t v = 0; v < case_.blocks * kSearchBlock; ++v) {
        float sum = first_[q];
        int64_t dot = 0;
        size_t dim = 0;
        size_t number = 0;
        for (const SearchGroup& group : groups_) {
          for (size_t i = 0; i < group.dims; ++i, ++dim) {
            const unsigned code = codes_[v * dims_ + dim];
            const int level = group.bits == 8 ? static_cast<int>(code) : group.table[code];
            dot += (level - 128) * queries_.as<int8_t>()[q * args_.query_stride + dim];
          }
          if (!group.ends_class) continue;
          const float part = static_cast<float>(dot) * steps_[q * args_.classes + number++];
          sum = sum + part;
          dot = 0;
        }
        sums[q * args_.sum_stride + v] = sum;
      }
    }
    return sums;
  }

 private:
  void put_two(uint8_t* plane, size_t i, size_t v, unsigned value) {
    plane[i / 16 * 64 + v * 4 + i % 4] |= static_cast<uint8_t>(value << 2 * (i % 16 / 4));
  }
  void put_one(uint8_t* plane, size_t i, size_t v, unsigned value) {
    const size_t j = i % 16 / 4;
    const size_t bit = i % 32 / 16 * 2 + j % 2 + j / 2 * 4;
    plane[i / 32 * 64 + v * 4 + i % 4] |= static_cast<uint8_t>(value << bit);
  }

  void fill() {
    top_.resize(case_.blocks * args_.top_stride);
    rest_.resize(case_.blocks * args_.rest_stride + 1);
    codes_.resize(case_.blocks * kSearchBlock * dims_);
    for (size_t v = 0; v < case_.blocks * kSearchBlock; ++v) {
      size_t dim = 0;
      for (const SearchGroup& group : groups_) {
        for (size_t i = 0; i < group.dims; ++i, ++dim) {
          const unsigned code = static_cast<unsigned>(random_()) & ((1u << group.bits) - 1u);
          codes_[v * dims_ + dim] = static_cast<uint8_t>(code);
          const size_t block = v / kSearchBlock;
          const size_t lane = v % kSearchBlock;
          uint8_t* plane = top_.data() + block * args_.top_stride + group.top;
          if (group.bits == 1) {
            put_one(plane, i, lane, code);
            continue;
          }
          put_two(plane, i, lane, code >> (group.bits - 2) & 3);
          plane = rest_.data() + block * args_.rest_stride + group.rest;
          for (unsigned left = group.bits - 2u; left > 0; left -= left > 1 ? 2 : 1) {
            if (left > 1) {
              put_two(plane, i, lane, code >> (left - 2) & 3);
            } else {
              put_one(plane, i, lane, code & 1);
            }
            plane += search_plane_bytes(group.dims, left > 1);
          }
        }
      }
    }
    auto made = Buffer::allocate(case_.queries * args_.query_stride + 64);
    ASSERT_TRUE(made.ok());
    queries_ = std::move(*made);
    for (size_t q = 0; q < case_.queries; ++q) {
      first_.push_back(static_cast<float>(random_() % 100) - 50.0f);
      size_t dim = 0;
      int32_t sum = 0;
      for (const SearchGroup& group : groups_) {
        for (size_t i = 0; i < group.dims; ++i, ++dim) {
          const int code = random_() % 9 == 0 ? -127 : static_cast<int>(random_() % 255) - 127;
          queries_.as<int8_t>()[q * args_.query_stride + dim] = static_cast<int8_t>(code);
          sum += code;
        }
        if (!group.ends_class) continue;
        code_sums_.push_back(sum);
        steps_.push_back(static_cast<float>(random_() % 1000 + 1) * 1e-5f);
        sum = 0;
      }
    }
    args_.groups = groups_.data();
    args_.group_count = groups_.size();
    args_.top = top_.data();
    args_.rest = rest_.data();
    args_.blocks = case_.blocks;
    args_.queries = queries_.as<int8_t>();
    args_.query_count = case_.queries;
    args_.code_sums = code_sums_.data();
    args_.steps = steps_.data();
    args_.first = first_.data();
    args_.sum_stride = case_.blocks * kSearchBlock + 16;
  }

  Case case_;
  std::mt19937 random_;
  size_t dims_ = 0;
  std::vector<SearchGroup> groups_;
  std::vector<uint8_t> top_, rest_, codes_;
  Buffer queries_;
  std::vector<int32_t> code_sums_;
  std::vector<float> steps_, first_;
  SearchScanArgs args_;
};

void expect_same(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << what << " " << i;
  }
}

TEST(SearchKernels, ScanAddsWhatIsDefinedAtEveryLevel) {
  std::vector<Case> cases;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const uint32_t dims : {32u, 96u, 384u}) {
      cases.push_back({{static_cast<uint8_t>(bits)}, {dims}, {true}, 3, 3});
    }
  }
  cases.push_back({{6, 5, 5, 4, 3, 1},
                   {64, 64, 64, 64, 64, 32},
                   {false, true, false, true, false, true},
                   5,
                   21});
  cases.push_back({{8, 8}, {64, 64}, {true, true}, 1, 1});
  for (const size_t queries : {1, 2, 4, 7, 8, 15, 16, 17, 33, 64}) {
    cases.push_back({{4, 2}, {64, 32}, {true, true}, queries % 7 + 1, queries});
  }
  for (const Case& c : cases) {
    Scan scan(c);
    std::vector<float> expected = scan.expected();
    for (const Kernels& kernels : kernel_levels()) {
      std::vector<float> got = scan.run(kernels);
      for (size_t q = 0; q < c.queries; ++q) {
        const size_t stride = got.size() / c.queries;
        for (size_t v = c.blocks * kSearchBlock; v < stride; ++v) {
          EXPECT_TRUE(std::isnan(got[q * stride + v])) << "written behind the last block";
          got[q * stride + v] = expected[q * stride + v];
        }
      }
      expect_same(got, expected, kernels.level);
    }
  }
}

TEST(SearchKernels, SelectScoresAndComparesAlikeAtEveryLevel) {
  std::mt19937 random(5);
  constexpr size_t kBlocks = 9;
  constexpr size_t kCount = kBlocks * kSearchBlock;
  std::vector<float> sums(kCount), norms(kCount);
  std::vector<uint16_t> scales(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    sums[i] = static_cast<float>(random() % 2001) - 1000.0f;
    norms[i] = static_cast<float>(random() % 100);
    scales[i] = i % 10 == 0 ? 0 : static_cast<uint16_t>(random());
  }
  sums[3] = NAN;
  for (const bool with_norms : {false, true}) {
    SearchSelectArgs args;
    args.sums = sums.data();
    args.scales = scales.data();
    args.norms = with_norms ? norms.data() : nullptr;
    args.blocks = kBlocks;
    args.constant = 0.25f;
    args.threshold = 0.25f;
    std::vector<float> expected(kCount), scores(kCount);
    std::vector<uint16_t> expected_masks(kBlocks), masks(kBlocks);
    args.scores = expected.data();
    args.masks = expected_masks.data();
    scalar_kernels().search_select(args);
    for (size_t i = 0; i < kCount; ++i) {
      const double scale =
          scales[i] == 0 ? 0
                         : std::ldexp(1.0 + (scales[i] & 1023) / 1024.0, (scales[i] >> 10) - 31);
      const auto product = static_cast<float>(sums[i] * scale);
      const float want = (product + 0.25f) - (with_norms ? norms[i] : 0.0f);
      if (i != 3) {
        EXPECT_EQ(expected[i], want) << i;
      }
      EXPECT_EQ(expected_masks[i / 16] >> i % 16 & 1, want >= 0.25f ? 1 : 0) << i;
    }
    args.scores = scores.data();
    args.masks = masks.data();
    for (const Kernels& kernels : kernel_levels()) {
      kernels.search_select(args);
      expect_same(scores, expected, kernels.level);
      EXPECT_EQ(masks, expected_masks) << kernels.level;
    }
  }
}

TEST(SearchKernels, ProductsAndCodesAreAlikeAtEveryLevel) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  for (const size_t rows : {1, 5, 8, 19}) {
    for (const size_t columns : {1, 16, 50}) {
      const size_t k = 37;
      const size_t stride = (columns + 31) / 32 * 32;
      std::vector<float> a(rows * k), b(k * stride), expected(rows * stride, 7), got;
      for (float& x : a) x = normal(random);
      for (float& x : b) x = normal(random);
      SearchProductArgs args{a.data(), k, b.data(), stride, nullptr, stride, rows, columns, k};
      for (size_t r = 0; r < rows; ++r) {
        for (size_t j = 0; j < columns; ++j) {
          volatile float sum = 0;  // volatile: each step is rounded
          for (size_t i = 0; i < k; ++i) {
            const volatile float product = a[r * k + i] * b[i * stride + j];
            sum = sum + product;
          }
          expected[r * stride + j] = sum;
        }
      }
      for (const Kernels& kernels : kernel_levels()) {
        got.assign(rows * stride, 7);
        args.out = got.data();
        kernels.search_product(args);
        for (size_t i = 0; i < got.size(); ++i) {
          if (i % stride >= columns) continue;
          ASSERT_EQ(got[i], expected[i]) << kernels.level << " " << i;
        }
      }
    }
  }
  const std::vector<float> thresholds = {-1.5f, -0.5f, 0.0f, 0.5f, 2.0f};
  std::vector<float> x;
  for (size_t i = 0; i < 101; ++i) x.push_back(normal(random));
  x[7] = NAN;
  x[8] = INFINITY;
  x[9] = 0.25f;  // a threshold itself, after the factor
  for (const Kernels& kernels : kernel_levels()) {
    std::vector<uint8_t> codes(x.size() + 1, 99);
    kernels.search_codes(
        {x.data(), x.size(), 2.0f, thresholds.data(), thresholds.size(), codes.data()});
    for (size_t i = 0; i < x.size(); ++i) {
      unsigned want = 0;
      for (const float t : thresholds) want += x[i] * 2.0f >= t ? 1 : 0;
      ASSERT_EQ(codes[i], want) << kernels.level << " " << i;
    }
    EXPECT_EQ(codes.back(), 99);
  }
}

}  // namespace
}  // namespace kvikk
