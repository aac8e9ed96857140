// Categories come from char_class.h, so that both regular-expression engines know the same Unicode.
#include "text/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "text/char_class.h"

namespace kvikk {
namespace {

using Range = CharSet::Range;

// Scripts of Unicode 16, from Scripts.txt.
constexpr Range kHan[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
    {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
    {0x30000, 0x3134A}, {0x31350, 0x323AF},
};
constexpr Range kHiragana[] = {
    {0x3041, 0x3096},   {0x309D, 0x309F},   {0x1B001, 0x1B11F},
    {0x1B132, 0x1B132}, {0x1B150, 0x1B152}, {0x1F200, 0x1F200},
};
constexpr Range kKatakana[] = {
    {0x30A1, 0x30FA},   {0x30FD, 0x30FF},   {0x31F0, 0x31FF},   {0x32D0, 0x32FE},
    {0x3300, 0x3357},   {0xFF66, 0xFF6F},   {0xFF71, 0xFF9D},   {0x1AFF0, 0x1AFF3},
    {0x1AFF5, 0x1AFFB}, {0x1AFFD, 0x1AFFE}, {0x1B000, 0x1B000}, {0x1B120, 0x1B122},
    {0x1B155, 0x1B155}, {0x1B164, 0x1B167},
};
constexpr Range kHangul[] = {
    {0x1100, 0x11FF}, {0x302E, 0x302F}, {0x3131, 0x318E}, {0x3200, 0x321E}, {0x3260, 0x327E},
    {0xA960, 0xA97C}, {0xAC00, 0xD7A3}, {0xD7B0, 0xD7C6}, {0xD7CB, 0xD7FB}, {0xFFA0, 0xFFBE},
    {0xFFC2, 0xFFC7}, {0xFFCA, 0xFFCF}, {0xFFD2, 0xFFD7}, {0xFFDA, 0xFFDC},
};
// Symbols with the property Alphabetic: circled and squared letters.
constexpr Range kAlphabeticSymbols[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kLongNames[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
};

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return plain;
}

template <size_t N>
CharSet of_table(const Range (&ranges)[N]) {
  return CharSet::of_ranges({std::begin(ranges), std::end(ranges)});
}

// Long stretches of one category, so that not every character needs a look.
constexpr Range kUniform[] = {
    {0x3400, 0x4DBF},     {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},   {0xD800, 0xDFFF},
    {0xE000, 0xF8FF},     {0x17000, 0x187F7}, {0x20000, 0x2A6DF}, {0x2CEB0, 0x2EBE0},
    {0x30000, 0x3134A},   {0x323B0, 0xE0000}, {0xE01F0, 0xEFFFF}, {0xF0000, 0xFFFFD},
    {0x100000, 0x10FFFD},
};

CharSet of_categories(CategoryMask mask) {
  std::vector<Range> ranges;
  const Range* uniform = std::begin(kUniform);
  for (char32_t c = 0; c <= CharSet::kLast;) {
    const bool in = (category_bit(c) & mask) != 0;
    char32_t end = c;
    while (end <= CharSet::kLast && ((category_bit(end) & mask) != 0) == in) {
      while (uniform != std::end(kUniform) && uniform->last < end) ++uniform;
      const bool skips = uniform != std::end(kUniform) && uniform->first <= end;
      end = skips ? uniform->last + 1 : end + 1;
    }
    if (in) ranges.push_back({c, end - 1});
    c = end;
  }
  return CharSet::of_ranges(std::move(ranges));
}

}  // namespace

std::optional<CharSet> CharSet::property(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "any") return all();
  if (plain == "han") return of_table(kHan);
  if (plain == "hiragana") return of_table(kHiragana);
  if (plain == "katakana") return of_table(kKatakana);
  if (plain == "hangul") return of_table(kHangul);
  if (plain == "word") return word();
  if (plain == "space" || plain == "whitespace") return white_space();
  std::string brief;
  for (const LongName& known : kLongNames) {
    if (plain == known.name) brief = known.category;
  }
  if (brief.empty() && plain.size() <= 2 && !plain.empty()) {
    brief = plain;
    brief[0] = static_cast<char>(brief[0] - 32);
  }
  const CategoryMask mask = property_mask(brief);
  if (mask == 0) return std::nullopt;
  return of_categories(mask);
}

CharSet CharSet::white_space() {
  CharSet set = of_categories(white_space_mask());
  set.add('\t', '\r');
  return set;
}

CharSet CharSet::digit() { return of_categories(property_mask("Nd")); }

CharSet CharSet::word() {
  CharSet set = of_categories(property_mask("L") | property_mask("M") | property_mask("Nd") |
                              property_mask("Nl") | property_mask("Pc"));
  set.add(of_table(kAlphabeticSymbols));
  return set;
}

CharSet CharSet::word_and_fractions() {
  CharSet set = word();
  for (const char32_t c : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) set.add(c, c);
  return set;
}

void CharSet::add(const CharSet& other) {
  std::vector<Range> merged;
  merged.reserve(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
             std::back_inserter(merged),
             [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : merged) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharSet CharSet::complement() const {
  CharSet set;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (next < range.first) set.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) set.ranges_.push_back({next, kLast});
  return set;
}

CharSet CharSet::intersection(const CharSet& other) const {
  CharSet neither = complement();
  neither.add(other.complement());
  return neither.complement();
}

CharSet CharSet::without_case() const {
  CharSet set = *this;
  const bool is_ascii_letter = ranges_.size() == 1 && ranges_[0].first == ranges_[0].last &&
                               (ranges_[0].first | 0x20) >= 'a' && (ranges_[0].first | 0x20) <= 'z';
  if (is_ascii_letter) {
    const char32_t lower = ranges_[0].first | 0x20;
    set.add(lower, lower);
    set.add(lower - 0x20, lower - 0x20);
    if (lower == 's') set.add(0x17F, 0x17F);    // long s
    if (lower == 'k') set.add(0x212A, 0x212A);  // kelvin sign
    return set;
  }
  constexpr char32_t kLastWithCase = 0x1E943;
  for (char32_t c = 'A'; c <= kLastWithCase; ++c) {
    if (c == 0x2E80) c = 0xA640;  // no case between, nor in Hangul
    if (c == 0xABC0) c = 0xFB00;
    if (c == 0x130 || c == 0x131) continue;  // the Turkish i's fold to nothing here
    const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    const auto upper = static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
    const auto fold = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(upper)));
    if (lower == c && upper == c) continue;
    const char32_t same[] = {c, lower, upper, fold};
    const bool in = std::any_of(std::begin(same), std::end(same),
                                [this](char32_t other) { return contains(other); });
    if (!in) continue;
    for (const char32_t other : same) set.add(other, other);
  }
  return set;
}

bool CharSet::contains(char32_t c) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](char32_t v, const Range& r) { return v < r.first; });
  return after != ranges_.begin() && c <= after[-1].last;
}

void CharPartition::build(const std::vector<CharSet>& sets) {
  CHECK(sets.size() <= kSetsMax);
  firsts_ = {0};
  for (const CharSet& set : sets) {
    for (const Range& range : set.ranges()) {
      firsts_.push_back(range.first);
      if (range.last < CharSet::kLast) firsts_.push_back(range.last + 1);
    }
  }
  std::sort(firsts_.begin(), firsts_.end());
  firsts_.erase(std::unique(firsts_.begin(), firsts_.end()), firsts_.end());
  CHECK(firsts_.size() <= UINT16_MAX);
  masks_.assign(firsts_.size(), 0);
  for (size_t i = 0; i < sets.size(); ++i) {
    size_t part = 0;
    for (const Range& range : sets[i].ranges()) {
      while (firsts_[part] < range.first) ++part;
      for (; part < firsts_.size() && firsts_[part] <= range.last; ++part) {
        masks_[part] |= uint64_t{1} << i;
      }
    }
  }
  table_.resize(kTableSize);
  for (size_t part = 0; part < firsts_.size(); ++part) {
    const char32_t end = part + 1 < firsts_.size() ? firsts_[part + 1] : kTableSize;
    for (char32_t c = firsts_[part]; c < std::min(end, kTableSize); ++c) {
      table_[c] = static_cast<uint16_t>(part);
    }
  }
}

uint16_t CharPartition::part_of(char32_t c) const {
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), c);
  return static_cast<uint16_t>(after - firsts_.begin() - 1);
}

}  // namespace kvikk
