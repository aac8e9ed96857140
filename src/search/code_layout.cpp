#include "search/code_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace kvikk {

namespace {

constexpr size_t kBooks = 9;  // by bits, 0 to 8

// Integer levels are tried with this many steps a standard deviation. Below, rounding levels would
// cost more than the codes lose anyway; above, levels of few bits would be so large that the
// rounding of the query weighs more for them than for others.
constexpr double kStepsMin = 25;
constexpr double kStepsMax = 45;
constexpr double kStepsStep = 0.05;

struct IntegerLevels {
  std::vector<int> levels;
  float unit = 0;  // the value of 1
};

// How often a normal number falls between two thresholds.
double mass(double from, double to) {
  return 0.5 * (std::erf(to / std::sqrt(2.0)) - std::erf(from / std::sqrt(2.0)));
}

std::vector<double> masses(const Codebook& book) {
  std::vector<double> out;
  double from = -10;
  for (size_t i = 0; i < book.levels.size(); ++i) {
    const double to = i < book.thresholds.size() ? book.thresholds[i] : 10;
    out.push_back(mass(from, to));
    from = to;
  }
  return out;
}

// The unit with which integers in [-127, 127] are nearest to the levels.
IntegerLevels integer_levels(const std::vector<double>& levels,
                             const std::vector<double>& weights) {
  IntegerLevels best;
  double least = INFINITY;
  for (double steps = kStepsMin; steps <= kStepsMax; steps += kStepsStep) {
    double error = 0;
    double largest = 0;
    for (size_t i = 0; i < levels.size(); ++i) {
      const double rounded = std::rint(levels[i] * steps);
      const double off = levels[i] - rounded / steps;
      error += weights[i] * off * off;
      largest = std::max(largest, std::abs(rounded));
    }
    // Something must be chosen for levels that no step count fits; they are cut below.
    const bool fits = largest <= 127;
    if (best.unit != 0 && (!fits || error >= least)) continue;
    least = fits ? error : INFINITY;
    best.unit = static_cast<float>(1 / steps);
    best.levels.clear();
    for (const double level : levels) {
      best.levels.push_back(static_cast<int>(std::clamp(std::rint(level * steps), -127.0, 127.0)));
    }
  }
  return best;
}

void fill_table(const IntegerLevels& levels, SearchGroup& group) {
  const size_t period = levels.levels.size();
  for (size_t i = 0; i < kSearchTableSize; ++i) {
    group.table[i] = static_cast<uint8_t>(levels.levels[i % period] + 128);
  }
}

// The levels of codes of which only the top `bits` are known: the means of what they can be.
IntegerLevels top_levels(const Codebook& book, size_t bits) {
  const std::vector<double> weights = masses(book);
  const size_t count = size_t{1} << bits;
  const size_t each = book.levels.size() / count;
  std::vector<double> levels(count);
  std::vector<double> sums(count);
  for (size_t i = 0; i < book.levels.size(); ++i) {
    levels[i / each] += weights[i] * book.levels[i];
    sums[i / each] += weights[i];
  }
  for (size_t i = 0; i < count; ++i) levels[i] /= std::max(sums[i], 1e-12);
  return integer_levels(levels, sums);
}

size_t rest_plane_bytes(const CodeGroup& group) {
  size_t bytes = 0;
  for (size_t left = group.bits - std::min<size_t>(group.bits, 2); left > 0;
       left -= std::min<size_t>(left, 2)) {
    bytes += search_plane_bytes(group.padded(), left > 1);
  }
  return bytes;
}

size_t byte_of(size_t dim, size_t lane, bool two) {
  return dim / (two ? 16 : 32) * 64 + lane * 4 + dim % 4;
}
size_t shift_of_two(size_t dim) { return dim % 16 / 4 * 2; }
size_t shift_of_one(size_t dim) {
  const size_t j = dim % 16 / 4;
  return dim % 32 / 16 * 2 + j % 2 + j / 2 * 4;
}

constexpr size_t kWordDims = 4;  // whose codes are the bytes of a word

// The codes of a step's dims, a byte each, to the step's word of one vector.
template <bool kTwo>
uint32_t step_word(const uint8_t* codes, size_t down) {
  constexpr size_t kDims = kTwo ? 16 : 32;
  constexpr uint32_t kMask = kTwo ? 0x03030303 : 0x01010101;
  uint32_t out = 0;
  for (size_t i = 0; i < kDims; i += kWordDims) {
    uint32_t four;
    std::memcpy(&four, codes + i, sizeof four);
    out |= (four >> down & kMask) << (kTwo ? shift_of_two(i) : shift_of_one(i));
  }
  return out;
}

template <bool kTwo>
void put_plane(const uint8_t* codes, size_t dims, size_t down, size_t lane, uint8_t* plane) {
  constexpr size_t kDims = kTwo ? 16 : 32;
  for (size_t i = 0; i < dims; i += kDims) {
    uint8_t last[kDims] = {};
    if (dims - i < kDims) std::memcpy(last, codes + i, dims - i);
    const uint32_t word = step_word<kTwo>(dims - i < kDims ? last : codes + i, down);
    uint8_t* const at = plane + byte_of(i, lane, kTwo);
    uint32_t before;
    std::memcpy(&before, at, sizeof before);
    before |= word;
    std::memcpy(at, &before, sizeof before);
  }
}

// Calls f(plane's offset in its part, whether it is the top one, whether it has two bits, how far
// the code is shifted down for it).
template <class F>
void for_each_plane(const CodeGroup& group, const SearchGroup& place, F&& f) {
  f(place.top, true, group.bits > 1, group.bits > 1 ? group.bits - 2 : 0);
  size_t offset = place.rest;
  size_t left = group.bits - std::min<size_t>(group.bits, 2);
  while (left > 0) {
    const bool two = left > 1;
    left -= two ? 2 : 1;
    f(offset, false, two, left);
    offset += search_plane_bytes(group.padded(), two);
  }
}

}  // namespace

CodeLayout CodeLayout::make(std::vector<CodeGroup> groups, size_t dimensions) {
  CodeLayout layout;
  layout.groups_ = std::move(groups);
  layout.books_.resize(kBooks);
  for (const CodeGroup& group : layout.groups_) {
    Codebook& book = layout.books_[group.bits];
    if (book.bits == 0) book = make_codebook(std::max<size_t>(dimensions, 4), group.bits);
  }
  layout.place();
  return layout;
}

Result<CodeLayout> CodeLayout::restore(std::vector<CodeGroup> groups, std::vector<Codebook> books) {
  CodeLayout layout;
  layout.groups_ = std::move(groups);
  layout.books_ = std::move(books);
  layout.books_.resize(kBooks);
  for (const CodeGroup& group : layout.groups_) {
    const Codebook& book = layout.books_[group.bits];
    bool rises = book.levels.size() == size_t{1} << group.bits;
    for (size_t i = 0; i < book.levels.size(); ++i) {
      rises = rises && std::abs(book.levels[i]) <= kCodeLevelMax &&
              (i == 0 || book.levels[i] > book.levels[i - 1]);
    }
    if (!rises) return damaged("the levels of " + std::to_string(group.bits) + " bits do not rise");
  }
  layout.place();
  return layout;
}

void CodeLayout::place() {
  for (const CodeGroup& group : groups_) {
    const Codebook& code_book = book(group);
    SearchGroup whole;
    whole.dims = static_cast<uint32_t>(group.padded());
    whole.bits = static_cast<uint8_t>(group.bits);
    whole.top = static_cast<uint32_t>(top_bytes_);
    whole.rest = static_cast<uint32_t>(rest_bytes_);
    SearchGroup top = whole;
    top.bits = static_cast<uint8_t>(std::min<size_t>(group.bits, 2));
    if (group.bits <= kSearchTableBitsMax) {
      const std::vector<double> levels(code_book.levels.begin(), code_book.levels.end());
      const IntegerLevels integers = integer_levels(levels, masses(code_book));
      fill_table(integers, whole);
      whole_units_.push_back(integers.unit);
    } else {  // even steps: the code is its own level
      whole_units_.push_back(code_book.levels[1] - code_book.levels[0]);
    }
    const IntegerLevels open = top_levels(code_book, top.bits);
    fill_table(open, top);
    top_units_.push_back(open.unit);
    whole_.push_back(whole);
    top_.push_back(top);
    dims_ += group.dims;
    padded_ += group.padded();
    top_bytes_ += search_plane_bytes(group.padded(), group.bits > 1);
    rest_bytes_ += rest_plane_bytes(group);
  }
}

void CodeLayout::put(const uint8_t* codes, size_t lane, uint8_t* top, uint8_t* rest) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t dims = groups_[g].dims;
    for_each_plane(groups_[g], whole_[g], [&](size_t offset, bool is_top, bool two, size_t down) {
      uint8_t* plane = (is_top ? top : rest) + offset;
      if (two) return put_plane<true>(codes, dims, down, lane, plane);
      put_plane<false>(codes, dims, down, lane, plane);
    });
    codes += dims;
  }
}

void CodeLayout::get(const uint8_t* top, const uint8_t* rest, size_t lane, uint8_t* codes) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t dims = groups_[g].dims;
    std::fill(codes, codes + dims, uint8_t{0});
    for_each_plane(groups_[g], whole_[g], [&](size_t offset, bool is_top, bool two, size_t down) {
      const uint8_t* plane = (is_top ? top : rest) + offset;
      for (size_t i = 0; i < dims; ++i) {
        const unsigned byte = plane[byte_of(i, lane, two)];
        const unsigned bits = byte >> (two ? shift_of_two(i) : shift_of_one(i)) & (two ? 3u : 1u);
        codes[i] = static_cast<uint8_t>(codes[i] | bits << down);
      }
    });
    codes += dims;
  }
}

}  // namespace kvikk
