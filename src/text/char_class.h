#pragma once
// Sets of characters as the pre-tokenizers' regular expressions name them: \p{Lu}, \s, [^\r\n] ...
//
// A set is a bitmap for ASCII and, above it, a mask of general categories plus a few ranges. White
// space is Unicode's White_Space property: outside ASCII that is the categories Zs, Zl and Zp, and
// the one control character U+0085, which therefore gets a category of its own here.

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace kvikk {

// One bit per general category (in utf8proc's numbering); bit kNextLineCategory is U+0085 alone.
using CategoryMask = uint32_t;
constexpr int kNextLineCategory = 30;
constexpr int kCategoryCount = 31;

int category_of(char32_t c);
inline CategoryMask category_bit(char32_t c) { return CategoryMask{1} << category_of(c); }

// The categories of a property name such as "L", "Lu" or "N"; 0 where the name is unknown.
CategoryMask property_mask(std::string_view name);
CategoryMask white_space_mask();
bool is_white_space(char32_t c);
bool is_punctuation(char32_t c);     // ASCII's and category P, as the reference library knows it
bool is_numeric(char32_t c);         // category N, likewise
bool is_word_character(char32_t c);  // \w of the reference library, with joiners

class CharClass {
 public:
  void add_char(char32_t c) { add_range(c, c); }
  void add_range(char32_t first, char32_t last);
  void add_categories(CategoryMask mask);
  void add_white_space();
  void add_non_white_space();
  void negate();

  bool contains(char32_t c) const;
  bool ascii_contains(unsigned c) const { return ascii_[c >> 6] >> (c & 63) & 1; }
  bool operator==(const CharClass&) const = default;

  // For building tables: what holds for every character of a category, when no range interferes.
  bool has_ranges() const { return !ranges_.empty(); }
  CategoryMask categories() const { return categories_; }

 private:
  void set_ascii(unsigned c) { ascii_[c >> 6] |= uint64_t{1} << (c & 63); }

  std::array<uint64_t, 2> ascii_{};
  CategoryMask categories_ = 0;  // outside ASCII
  std::vector<std::pair<char32_t, char32_t>> ranges_;
  bool ranges_negated_ = false;  // then the set is what neither ranges_ nor categories_ hold
};

}  // namespace kvikk
