#pragma once
// Sets of characters with the algebra that regular expressions allow: union, intersection,
// complement. A set is its sorted, disjoint ranges; matching goes through CharPartition, which
// turns a character into the bit mask of the sets that hold it.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace kvikk {

class CharSet {
 public:
  struct Range {
    char32_t first;
    char32_t last;  // inclusive
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t kLast = 0x10FFFF;

  // Ascending, with gaps between them.
  static CharSet of_ranges(std::vector<Range> ranges) {
    CharSet set;
    set.ranges_ = std::move(ranges);
    return set;
  }
  static CharSet all() { return range(0, kLast); }
  static CharSet of(char32_t c) { return range(c, c); }
  static CharSet range(char32_t first, char32_t last) { return of_ranges({{first, last}}); }
  // \p{NAME}: general categories ("L", "Nd", "Letter") and a few scripts ("Han"); case, '_' and
  // '-' do not count. Nothing where the name is unknown.
  static std::optional<CharSet> property(std::string_view name);
  static CharSet white_space();  // \s
  static CharSet digit();        // \d
  static CharSet word();         // [\w]
  // \w and word edges outside of brackets, where Oniguruma takes Latin-1's superscripts and
  // fractions as well.
  static CharSet word_and_fractions();

  void add(const CharSet& other);
  void add(char32_t first, char32_t last) { add(range(first, last)); }
  CharSet intersection(const CharSet& other) const;
  CharSet complement() const;
  // With the upper and lower case of every letter in it; single mappings only.
  CharSet without_case() const;

  bool contains(char32_t c) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

class CharPartition {
 public:
  static constexpr size_t kSetsMax = 64;
  // At most kSetsMax sets.
  void build(const std::vector<CharSet>& sets);
  // Bit i: sets[i] holds c.
  uint64_t mask(char32_t c) const { return masks_[c < kTableSize ? table_[c] : part_of(c)]; }

 private:
  static constexpr char32_t kTableSize = 0x3400;  // all but the large ideographic blocks
  uint16_t part_of(char32_t c) const;

  std::vector<char32_t> firsts_;  // [parts] ascending, beginning with 0
  std::vector<uint64_t> masks_;   // [parts]
  std::vector<uint16_t> table_;   // [kTableSize]
};

}  // namespace kvikk
