#pragma once
// The tokens that may still be drawn at one position. At first that is every token, and nothing is
// stored but the row of logits itself; the first filter that shortens the choice turns it into a
// list. The list has no order that means anything.
//
// "Before" means everywhere: the higher logit first, and of equal logits the lower token.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/status.h"
#include "kvikk/token.h"
#include "sampling/logit_blocks.h"

namespace kvikk {

struct Candidate {
  TokenId token;
  float logit;
  double weight;  // exp(logit - top of the row), set by weigh(): proportional to the probability
};

class Candidates {
 public:
  // Memory for one row, taken from the system only where it is touched. Errors: kExhausted.
  static Result<Candidates> create(size_t vocabulary);

  size_t vocabulary() const { return vocabulary_; }

  // --- The row. First begin(), then edits, then scan().
  // raw: [vocabulary], not copied unless someone edits.
  void begin(std::span<const float> raw);
  std::span<float> edit();  // [vocabulary]; the caller keeps finite values finite (set_finite)
  Status scan(uint64_t position);

  // --- After scan().
  const LogitBlocks& row() const { return row_; }
  bool is_list() const { return is_list_; }
  std::span<Candidate> list();  // makes the list when there is none yet
  std::span<const Candidate> list() const { return {list_(), count_}; }  // needs is_list()
  float top() const;             // the highest logit among the candidates
  std::span<Candidate> weigh();  // list() with weights
  static double total_weight(std::span<const Candidate> list);

  void keep_best();               // the first one only
  void keep_top(size_t count);    // the first `count`; count >= 1
  void keep_from(double lowest);  // logits >= lowest; lowest <= top()
  void keep_mass(double share);   // the fewest first ones that hold this share of the probability
  void keep_first(size_t count);  // of the list as it lies; 1 <= count <= size

 private:
  Candidates() = default;
  Candidate* list_() { return memory_.as<Candidate>(); }
  const Candidate* list_() const { return memory_.as<Candidate>(); }
  float* edited() { return reinterpret_cast<float*>(list_() + vocabulary_); }
  float* maxima() { return edited() + vocabulary_; }
  float* maxima_copy() { return maxima() + LogitBlocks::blocks_for(vocabulary_); }
  void gather(double lowest);
  void append_between(double lowest, double limit);

  size_t vocabulary_ = 0;
  Buffer memory_;                  // Candidate[vocabulary], float[vocabulary], 2 x float[blocks]
  std::span<const float> source_;  // the raw or the edited row
  LogitBlocks row_;
  size_t count_ = 0;  // of the list
  bool is_list_ = false;
  bool weighed_ = false;
};

// Stores `value` as a logit without letting a finite one become infinite: an adjustment, however
// large, never forbids a token. Logits that are not finite stay as they are, for scan() to judge.
inline void set_finite(float& logit, double value) {
  constexpr double kLimit = std::numeric_limits<float>::max();
  if (!(logit >= -kLimit && logit <= kLimit)) return;
  logit = static_cast<float>(value > kLimit ? kLimit : value < -kLimit ? -kLimit : value);
}

// A share of the probability is reached when only this part of it is missing: what sums of equal
// weights lose to rounding, which depends on their order, must not decide whether half of ten equal
// tokens is five or six.
inline constexpr double kShareSlack = 1 - 1e-12;

// Moves the shortest prefix of `items`, in the order of `before`, whose weights reach `target`, to
// the front and returns its length (at least 1; all when the weights never reach it). Linear time
// on average: halves by selection, keeps the half in which the target is reached.
template <class Before>
size_t select_mass(std::span<Candidate> items, double target, Before before) {
  target *= kShareSlack;
  constexpr size_t kSortBelow = 32;
  size_t begin = 0, end = items.size();
  double taken = 0;
  while (end - begin > kSortBelow) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(items.begin() + begin, items.begin() + middle, items.begin() + end, before);
    const double half = Candidates::total_weight(items.subspan(begin, middle - begin));
    if (taken + half >= target) {
      end = middle;
    } else {
      taken += half;
      begin = middle;
    }
  }
  std::sort(items.begin() + begin, items.begin() + end, before);
  for (size_t i = begin; i < end; ++i) {
    taken += items[i].weight;
    if (taken >= target) return i + 1;
  }
  return end;
}

}  // namespace kvikk
