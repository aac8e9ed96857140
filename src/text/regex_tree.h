#pragma once
// A regular expression between its text and its automaton.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/char_set.h"

namespace kvikk {

struct RegexTree {
  enum class Kind { kSet, kSequence, kChoice, kRepeat, kCondition };
  Kind kind = Kind::kSequence;
  uint32_t set = 0;   // kSet, and conditions about one character: an index into the sets
  int condition = 0;  // a Regex::Kind
  uint32_t min = 1;   // kRepeat
  uint32_t max = 1;   // UINT32_MAX: no limit
  bool lazy = false;
  bool possessive = false;
  std::vector<RegexTree> children;

  bool can_be_empty() const;
};

// Appends the expression's sets of characters to *sets. kUnsupported with the place.
Result<RegexTree> parse_regex(std::string_view regex, std::vector<CharSet>* sets);

}  // namespace kvikk
