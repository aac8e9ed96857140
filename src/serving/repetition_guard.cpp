#include "serving/repetition_guard.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace kvikk {
namespace {

bool is_filler(std::string_view text) {
  constexpr std::string_view kLines = "-=_*#.~|";
  return std::all_of(text.begin(), text.end(), [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return std::isspace(byte) != 0 || std::isdigit(byte) != 0 ||
           kLines.find(c) != std::string_view::npos;
  });
}

}  // namespace

// Of the last `period` tokens; one time more is a repetition.
size_t RepetitionGuard::repeats_allowed(size_t period) const {
  bool filler = true;
  for (size_t back = 1; back <= period && filler; ++back) {
    filler = filler_[(count_ - back) % kPeriodMax];
  }
  if (filler) return kFillerRepeats - 1;
  if (period == 1) return kTokenRepeats - 1;
  return std::max(kPeriodRepeats, (kPeriodTokens + period - 1) / period) - 1;
}

bool RepetitionGuard::push(TokenId token) {
  const size_t periods = std::min(count_, kPeriodMax);
  for (size_t period = 1; period <= periods; ++period) {
    const bool same = last_[(count_ - period) % kPeriodMax] == token;
    equal_[period] = same ? equal_[period] + 1 : 0;
  }
  const bool filler = is_filler(bytes_(token));
  if (last_.size() < kPeriodMax) {
    last_.push_back(token);
    filler_.push_back(filler);
  } else {
    last_[count_ % kPeriodMax] = token;
    filler_[count_ % kPeriodMax] = filler;
  }
  ++count_;
  // A multiple of a period needs more tokens than the period itself, so whatever is found first is
  // what it is.
  for (size_t period = 1; period <= periods; ++period) {
    if (equal_[period] / period + 1 > repeats_allowed(period)) return true;
  }
  return false;
}

}  // namespace kvikk
