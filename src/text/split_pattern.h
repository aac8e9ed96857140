#pragma once
// The regular expressions of pre-tokenizers, as their authors published them.
//
// Published tokenizers use a small part of regular expressions: alternatives, each a sequence of
// repeated character classes, sometimes with a list of literals ("'s|'t|'re") or one lookahead at
// the end. This engine compiles that part and refuses the rest with a message. Unlike a general
// engine it knows Unicode's White_Space as the originals do, needs no match memory, cannot fail at
// run time and spends time linear in the text (see FailedRuns below); the semantics are those of
// Perl: the first alternative that matches wins, repetition is greedy and gives back.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace kvikk {

class SplitPattern {
 public:
  static constexpr size_t kRegexBytesMax = 4096;
  static constexpr size_t kAlternativesMax = 32;
  static constexpr size_t kStepsMax = 16;  // per alternative; bounds the recursion of a match
  static constexpr size_t kClassesMax = 64;

  static Result<SplitPattern> compile(std::string_view regex);

  // Cuts `text` (well-formed UTF-8) into matches and what lies between them; emit(string_view, bool
  // is_match) gets every piece in order, and their concatenation is `text`.
  template <class Emit>
  void split(std::string_view text, Emit&& emit) const {
    FailedRuns failed;
    failed.fill(text.data());
    const char* const end = text.data() + text.size();
    const char* gap = text.data();
    for (const char* p = gap; p < end;) {
      const char* const match_end = match_at(p, end, failed);
      if (match_end == nullptr) {
        p += decode_valid_utf8(p).bytes;
        continue;
      }
      if (gap < p) emit(std::string_view(gap, p - gap), false);
      emit(std::string_view(p, match_end - p), true);
      p = gap = match_end;
    }
    if (gap < end) emit(std::string_view(gap, end - gap), false);
  }

 private:
  friend class SplitPatternParser;

  struct Step {
    enum class Kind : uint8_t {
      kRepeat,       // class_index, min to max times
      kOneOf,        // one of literals[first..last), or nothing where min is 0
      kLineEnd,      // $: at the end or before \n
      kNotNonSpace,  // (?!\S)
    };
    Kind kind = Kind::kRepeat;
    bool possessive = false;
    uint32_t class_index = 0;
    uint32_t min = 1;
    uint32_t max = 1;
    uint32_t first_literal = 0;
    uint32_t last_literal = 0;
  };
  struct Alternative {
    std::vector<Step> steps;
    uint64_t first_classes = 0;   // bit i: a match can begin with a character of classes_[i]
    bool leads_with_run = false;  // begins with X* or X+: FailedRuns applies
  };
  // Where an alternative that begins with X+ (or X*) failed at p although the run of X reached e,
  // it fails from every start in (p, e) too: those starts allow only a part of the splits tried
  // from p. Skipping them keeps `\s+$` linear on long runs of spaces.
  using FailedRuns = std::array<const char*, kAlternativesMax>;

  void finish();  // fills the tables below
  bool in_class(uint32_t class_index, char32_t c) const;
  uint64_t classes_of(char32_t c) const;
  // The end of the longest run of the class at p, at most `max` characters, counted in *count.
  const char* run(const Step& step, const char* p, const char* end, uint32_t* count) const;
  const char* match_at(const char* p, const char* end, FailedRuns& failed) const;
  const char* match_steps(const Step* step, const Step* last, const char* p, const char* end) const;
  const char* match_one_of(const Step* step, const Step* last, const char* p,
                           const char* end) const;

  std::vector<CharClass> classes_;
  std::vector<std::vector<uint32_t>> literals_;  // each a sequence of class indices
  std::vector<Alternative> alternatives_;
  std::array<uint64_t, 128> ascii_classes_{};       // bit i: the character is in classes_[i]
  std::array<uint32_t, 128> ascii_alternatives_{};  // bit i: alternatives_[i] can begin with it
  std::array<uint64_t, kCategoryCount> category_classes_{};  // the same outside ASCII ...
  uint64_t classes_with_ranges_ = 0;                         // ... except for these
};

}  // namespace kvikk
