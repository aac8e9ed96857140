// Codes: what comes back, how good the scores are, and that planes hold what was put in.

#include "search/vector_coder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "index_fixture.h"
#include "search/fit.h"

namespace kvikk {
namespace {

Kernels kernels() { return make_kernels(detect_cpu_features()); }

double mean_square_error(const VectorCoder& coder, const std::vector<float>& x, size_t d) {
  double error = 0;
  double total = 0;
  std::vector<CodedVector> coded;
  std::vector<float> back(d);
  for (size_t r = 0; r < x.size() / d; ++r) {
    EXPECT_TRUE(coder.encode(kernels(), &x[r * d], 1, r, nullptr, coded).ok());
    coder.decode(coded[0], back.data());
    for (size_t i = 0; i < d; ++i) {
      error += std::pow(x[r * d + i] - back[i], 2);
      total += std::pow(x[r * d + i], 2);
    }
  }
  return error / total;
}

TEST(VectorCoder, LosesWhatTheoryLosesWhateverTheDimension) {
  // The unbiased scale makes D into D / (1 - D); one rotation of few dimensions may lose less.
  const double distortion[] = {0, 0.3634, 0.1175, 0.03455, 0.0095};
  for (const size_t d : {64, 100, 384, 1536}) {
    const std::vector<float> x = make_vectors(60, d, 1);
    for (const size_t bits : {1, 2, 3, 4}) {
      const VectorCoder coder = VectorCoder::oblivious(d, bits, Metric::kInnerProduct);
      const double expected = distortion[bits] / (1 - distortion[bits]);
      const double error = mean_square_error(coder, x, d);
      EXPECT_LT(error, expected * 1.05) << d << " " << bits;
      EXPECT_GT(error, expected * (d == 64 ? 0.75 : 0.9)) << d << " " << bits;
    }
    EXPECT_LT(mean_square_error(VectorCoder::oblivious(d, 8, Metric::kInnerProduct), x, d), 2e-4);
  }
}

TEST(VectorCoder, AnyDimensionFromOneOn) {
  for (const size_t d : {1, 2, 3, 5, 7, 31, 33, 4096}) {
    const std::vector<float> x = make_vectors(4, d, 2);
    const VectorCoder coder = VectorCoder::oblivious(d, 8, Metric::kInnerProduct);
    EXPECT_LT(mean_square_error(coder, x, d), 2e-2) << d;
  }
}

TEST(VectorCoder, FittedCodesLoseLess) {
  const size_t d = 256;
  const std::vector<float> x = make_vectors(3000, d, 3);
  ThreadPool pool(2);
  for (const size_t bits : {2, 4}) {
    auto fitted = fit_coder(kernels(), pool, x, d, bits, Metric::kInnerProduct);
    ASSERT_TRUE(fitted.ok()) << fitted.status().message();
    const VectorCoder oblivious = VectorCoder::oblivious(d, bits, Metric::kInnerProduct);
    EXPECT_LE(fitted->layout().block_bytes(), oblivious.layout().block_bytes());
    const std::vector<float> fresh = make_vectors(100, d, 4);
    EXPECT_LT(mean_square_error(*fitted, fresh, d), mean_square_error(oblivious, fresh, d) / 1.5);
  }
}

TEST(VectorCoder, ScoresOfAVectorWithItselfAreExact) {
  // What the unbiased scale promises; the query's own rounding is all that is left.
  const size_t d = 128;
  const std::vector<float> x = make_vectors(1, d, 5);
  const double exact = exact_score(Metric::kInnerProduct, x.data(), x.data(), d);
  for (const int bits : {1, 2, 3, 4, 8}) {
    IndexOptions options;
    options.dimensions = d;
    options.bits = bits;
    auto index = make_index(options);
    ASSERT_TRUE(index->add(x, make_ids(1)).ok());
    EXPECT_NEAR(find(*index, x)[0][0].score, exact, exact * 0.005) << bits;
  }
}

TEST(VectorCoder, ScalesRoundToTenBits) {
  EXPECT_EQ(scale_to_bits(0), 0);
  EXPECT_EQ(scale_to_bits(0x1p-32), 0);
  EXPECT_EQ(scale_to_bits(1.0), 31 << 10);
  EXPECT_EQ(scale_to_bits(1.5), (31 << 10) + 512);
  EXPECT_EQ(scale_to_bits(1.99999), 32 << 10);
  EXPECT_EQ(scale_to_bits(1e30), 0xffff);
}

TEST(CodeLayout, PlanesGiveBackTheCodes) {
  std::mt19937 random(6);
  const CodeLayout layout = CodeLayout::make({{64, 6, 3.0},
                                              {64, 5, 2.0},
                                              {40, 4, 1.5},
                                              {64, 3, 1.0},
                                              {10, 2, 0.5},
                                              {7, 1, 0.2},
                                              {64, 8, 0.1}},
                                             400);
  std::vector<uint8_t> top(layout.top_bytes()), rest(layout.rest_bytes());
  std::vector<std::vector<uint8_t>> all;
  for (size_t lane = 0; lane < kSearchBlock; ++lane) {
    std::vector<uint8_t>& codes = all.emplace_back();
    for (const CodeGroup& group : layout.groups()) {
      for (size_t i = 0; i < group.dims; ++i) {
        codes.push_back(static_cast<uint8_t>(random() & ((1u << group.bits) - 1)));
      }
    }
    layout.put(codes.data(), lane, top.data(), rest.data());
  }
  for (size_t lane = 0; lane < kSearchBlock; ++lane) {
    std::vector<uint8_t> codes(layout.dims());
    layout.get(top.data(), rest.data(), lane, codes.data());
    EXPECT_EQ(codes, all[lane]);
  }
}

TEST(FitCoder, RefusesWhatCannotBeFitted) {
  ThreadPool pool(1);
  const auto fit = [&](const std::vector<float>& x, size_t d) {
    const auto rows = ready_sample(x, d, kFitVectorsMax, Metric::kCosine);
    if (!rows.ok()) return rows.status().message();
    const auto made = fit_coder(kernels(), pool, *rows, d, 2, Metric::kCosine);
    return made.ok() ? std::string("fitted") : made.status().message();
  };
  EXPECT_NE(fit(make_vectors(255, 8, 1), 8).find("at least 256"), std::string::npos);
  EXPECT_NE(fit(std::vector<float>(300 * 8, 1.0f), 8).find("all the same"), std::string::npos);
  std::vector<float> x = make_vectors(300, 8, 1);
  x[9] = NAN;
  EXPECT_NE(fit(x, 8).find("vector 1 "), std::string::npos);
  EXPECT_NE(fit(std::vector<float>(300 * 3000), 3000).find("at most 2048"), std::string::npos);
  EXPECT_EQ(fit(make_vectors(300, 8, 1), 8), "fitted");
  EXPECT_EQ(fit(make_vectors(300, 100, 1), 100), "fitted");  // rank below the dimensions
}

}  // namespace
}  // namespace kvikk
