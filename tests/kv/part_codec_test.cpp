// Other people's codes of a page: their bits, their errors on normal numbers, zeros and faults.

#include "kv/part_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvikk {
namespace {

constexpr size_t kSize = 128;

struct Case {
  const char* name;
  double bits;   // of a number, scales included, at 128 dims
  double error;  // mean square of normal numbers, at most; half of it at least
};

constexpr Case kCases[] = {
    {"turbo3.5", 3.5 + 1.0 / 64, 0.030},
    {"turbo2.5", 2.5 + 1.0 / 64, 0.100},
    {"turbo4-prod", 4.25, 0.110},
    {"turbo3-prod", 3.25, 0.370},
    {"kivi4", 5.0, 0.012},
    {"kivi2", 3.0, 0.220},
    {"polar4", 4.0, 0.050},
    {"polar3", 3.5, 0.080},
    {"q4-hadamard", 4.5, 0.012},
    {"f16", 16.0, 5e-8},
};

class PartCodecs : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<PartCodec> make(KvPart part) {
    const auto choice = parse_kv(GetParam().name, KvFormat::kF32);
    EXPECT_TRUE(choice.ok());
    auto codec = make_part_codec(*choice->keys, part, kSize, 7);
    EXPECT_TRUE(codec.ok()) << codec.status().message();
    return std::move(*codec);
  }
  static std::vector<float> normal_page() {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<float> x(kPageTokens * kSize);
    for (float& value : x) value = normal(random);
    return x;
  }
  static std::vector<float> there_and_back(const PartCodec& codec, const std::vector<float>& x) {
    std::vector<uint8_t> coded(codec.bytes());
    std::vector<float> out(x.size());
    codec.encode(x.data(), coded.data());
    codec.decode(coded.data(), out.data());
    return out;
  }
};

TEST_P(PartCodecs, HasTheBitsAndTheErrorOfItsPaper) {
  const std::vector<float> x = normal_page();
  for (KvPart part : {KvPart::kKeys, KvPart::kValues}) {
    const auto codec = make(part);
    EXPECT_NEAR(static_cast<double>(codec->bytes()) * 8 / static_cast<double>(x.size()),
                GetParam().bits, 0.02);
    const std::vector<float> out = there_and_back(*codec, x);
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += std::pow(static_cast<double>(x[i]) - static_cast<double>(out[i]), 2);
    }
    error /= static_cast<double>(x.size());
    EXPECT_LT(error, GetParam().error);
    EXPECT_GT(error, GetParam().error / 3);
  }
}

TEST_P(PartCodecs, ZerosComeBackAndFaultsStayWhereTheyAre) {
  const auto codec = make(KvPart::kKeys);
  std::vector<float> x(kPageTokens * kSize);
  for (float value : there_and_back(*codec, x)) EXPECT_EQ(value, 0.0f);
  x = normal_page();
  x[5 * kSize + 3] = NAN;
  x[60 * kSize + 9] = 1e30f;
  const std::vector<float> out = there_and_back(*codec, x);
  EXPECT_TRUE(std::isnan(out[5 * kSize + 3]));
  for (size_t d = 0; d < kSize; ++d) {
    EXPECT_FALSE(std::isinf(out[60 * kSize + d]));
    // Neither its token nor its dim nor its groups.
    if (d == 3 || d == 9) continue;
    EXPECT_TRUE(std::isfinite(out[20 * kSize + d])) << d;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PartCodecs, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name) c = c == '.' || c == '-' ? '_' : c;
  return name;
});

TEST(PartCodec, SizesThatDoNotFitAreRefusedWithWhatDoes) {
  const auto choice = parse_kv("kivi4", KvFormat::kF32);
  ASSERT_TRUE(choice.ok());
  const auto codec = make_part_codec(*choice->keys, KvPart::kKeys, 80, 1);
  ASSERT_FALSE(codec.ok());
  EXPECT_NE(codec.status().message().find("80"), std::string::npos);
  EXPECT_NE(codec.status().message().find("turbo4"), std::string::npos);
}

}  // namespace
}  // namespace kvikk
