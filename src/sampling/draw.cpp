// The exponential race over a short list, and over a whole row. Both give the same token.

#include "sampling/draw.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "sampling/numeric.h"

namespace kvikk {
namespace {

constexpr size_t kStep = kUniformsStep;  // tokens of a row that are passed over together

// The exponential of a number that may be positive. Only for bounds.
double exp_any(double x) { return x <= 0 ? exp_nonpositive(x) : 1 / exp_nonpositive(-x); }

// At least 2^x, at most 7% above it, for x in [-125, 0]. A float's bits, read as an integer, are
// its logarithm with straight lines between the powers of two; going back that way gives chords of
// 2^x, which lie above it.
float power_of_two_bound(float x) {
  constexpr float kOctave = 1 << 23;        // one power of two, in units of a float's last bit
  constexpr float kExponentOfOne = 127;     // the bits of 1.0f, in octaves
  constexpr float kRounding = 1.0f / 8192;  // more than the rounding of x and of this sum
  const float clamped = x > -125.0f ? x : -125.0f;
  return std::bit_cast<float>(
      static_cast<int32_t>((clamped + (kExponentOfOne + kRounding)) * kOctave));
}

// Times are compared by their logarithms, which no temperature can overflow into a tie of zeros.
class Race {
 public:
  Race(float top, double temperature)
      : top_(top),
        inverse_temperature_(1 / temperature),
        octaves_(static_cast<float>(std::min(inverse_temperature_, 1e30) * 1.4426950408889634)) {}

  void enter(TokenId token, float logit, double u) {
    const double distance = static_cast<double>(top_) - logit;
    const double time = log_positive(-log_positive(u)) + distance * inverse_temperature_;
    if (time > best_time_ || (time == best_time_ && token > winner_)) return;
    best_time_ = time;
    winner_ = token;
    constexpr double kSlack = 1 + 1e-9;  // for the rounding of the bound
    bound_ = exp_any(time) * kSlack;
  }

  // A token can win only if E <= best time * w. Since E = -log(u) >= 1 - u, one whose 1 - u is
  // above that is passed over without a logarithm or an exact weight.
  bool can_win(float weight_bound, double u) const { return 1 - u <= bound_ * weight_bound; }
  float weight_bound(float logit) const { return power_of_two_bound((logit - top_) * octaves_); }
  bool any_can_win(const float* weight_bounds, const double* u) const;  // [kStep] each

  TokenId winner() const { return winner_; }

 private:
  float top_;
  double inverse_temperature_;
  float octaves_;  // a distance between logits times this is one of log2 w
  double best_time_ = std::numeric_limits<double>::infinity();  // its logarithm
  double bound_ = std::numeric_limits<double>::infinity();
  TokenId winner_ = std::numeric_limits<TokenId>::max();
};

bool Race::any_can_win(const float* weight_bounds, const double* u) const {
  double highest[2] = {-1, -1};
  for (size_t i = 0; i < kStep; i += 2) {
    for (size_t l = 0; l < 2; ++l) {
      const double margin = bound_ * weight_bounds[i + l] - (1 - u[i + l]);
      highest[l] = margin > highest[l] ? margin : highest[l];
    }
  }
  return highest[0] >= 0 || highest[1] >= 0;
}

TokenId draw_from_row(const LogitBlocks& row, double temperature, RandomKey key) {
  double u[kStep];
  float weights[kStep];
  const auto logits = row.logits();
  Race race(row.top(), temperature);
  const TokenId best = row.best();  // first, for a sharp bound from the start
  race.enter(best, row.top(), uniform(key, RandomStream::kToken, static_cast<uint32_t>(best)));
  for (size_t begin = 0; begin < logits.size(); begin += kStep) {
    const size_t count = std::min(kStep, logits.size() - begin);
    uniforms(key, RandomStream::kToken, static_cast<uint32_t>(begin), kStep, u);
    const float* step_logits = logits.data() + begin;
    for (size_t i = 0; i < count; ++i) weights[i] = race.weight_bound(step_logits[i]);
    std::fill(weights + count, weights + kStep, 0.0f);
    if (!race.any_can_win(weights, u)) continue;
    for (size_t i = 0; i < count; ++i) {
      if (!race.can_win(weights[i], u[i])) continue;
      race.enter(static_cast<TokenId>(begin + i), step_logits[i], u[i]);
    }
  }
  return race.winner();
}

}  // namespace

TokenId draw(const Candidates& candidates, double temperature, RandomKey key) {
  if (!candidates.is_list()) return draw_from_row(candidates.row(), temperature, key);
  Race race(candidates.top(), temperature);
  for (const Candidate& c : candidates.list()) {
    const double u = uniform(key, RandomStream::kToken, static_cast<uint32_t>(c.token));
    if (race.can_win(race.weight_bound(c.logit), u)) race.enter(c.token, c.logit, u);
  }
  return race.winner();
}

}  // namespace kvikk
