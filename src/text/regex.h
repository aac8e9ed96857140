#pragma once
// Regular expressions of published tokenizers beyond what split_pattern.h compiles: nested groups
// and repetitions, intersections of classes, lookahead, lookbehind of one character, word
// boundaries. The semantics are Oniguruma's, which the reference library uses: the first
// alternative that matches wins, repetition is greedy (lazy where it says so) and gives back.
//
// Any text takes linear time. From the end of the text backwards, every position gets the set of
// automaton states from which a match can still be completed; from the front, the preferred choice
// that is in the set is then always right and nothing is tried in vain.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/char_set.h"

namespace kvikk {

class Regex {
 public:
  static constexpr size_t kRegexBytesMax = 8192;
  static constexpr size_t kStatesMax = 1024;
  static constexpr int kDepthMax = 32;  // of groups

  // kUnsupported with the place in the expression.
  static Result<Regex> compile(std::string_view regex);

  // The matches in `text` (well-formed UTF-8) from left to right: emit(begin, end), possibly empty
  // ones.
  void find_all(std::string_view text, const std::function<void(size_t, size_t)>& emit) const;

 private:
  friend class RegexParser;
  friend class RegexBuilder;

  enum class Kind : uint8_t {
    kChar,       // a character of sets_[argument], then next
    kChoice,     // next, or else other
    kMatch,      // the end
    kLineBegin,  // this and the others: a condition holds here, then next
    kLineEnd,
    kTextBegin,
    kTextEnd,
    kTextEndOrLastLine,
    kWordEdge,
    kNotWordEdge,
    kAhead,  // from state `other` there is a match
    kNotAhead,
    kBehind,  // the character before is in sets_[argument]
    kNotBehind,
    kNotNext,  // the next character is not in sets_[argument]
  };
  struct State {
    Kind kind;
    uint32_t next = 0;
    uint32_t other = 0;
    uint32_t argument = 0;
  };
  // What a condition can see at a position.
  struct Place {
    std::string_view text;
    size_t at;
    uint64_t before;  // mask of the character before, 0 at the begin
    uint64_t after;   // mask of the next character, 0 at the end
  };
  class Alive;

  void finish();  // orders the states, builds the partition
  bool holds(const State& state, const Place& place, const uint64_t* alive) const;
  void fill(std::string_view text, Alive* alive) const;
  size_t match_end(const Alive& alive, std::string_view text, size_t at) const;

  std::vector<State> states_;
  std::vector<CharSet> sets_;    // the last one is for word edges
  std::vector<uint32_t> order_;  // states, each after those that it leads to without a character
  uint32_t start_ = 0;
  CharPartition partition_;
};

}  // namespace kvikk
