// Categories come from utf8proc. Only what the tokenizers of published models need is here.
#include "text/char_class.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "text/unicode_age.h"

namespace kvikk {
namespace {

constexpr CategoryMask bit(int category) { return CategoryMask{1} << category; }

constexpr CategoryMask kLetter = bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) |
                                 bit(UTF8PROC_CATEGORY_LT) | bit(UTF8PROC_CATEGORY_LM) |
                                 bit(UTF8PROC_CATEGORY_LO);
constexpr CategoryMask kMark =
    bit(UTF8PROC_CATEGORY_MN) | bit(UTF8PROC_CATEGORY_MC) | bit(UTF8PROC_CATEGORY_ME);
constexpr CategoryMask kNumber =
    bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_NO);
constexpr CategoryMask kPunctuation = bit(UTF8PROC_CATEGORY_PC) | bit(UTF8PROC_CATEGORY_PD) |
                                      bit(UTF8PROC_CATEGORY_PS) | bit(UTF8PROC_CATEGORY_PE) |
                                      bit(UTF8PROC_CATEGORY_PI) | bit(UTF8PROC_CATEGORY_PF) |
                                      bit(UTF8PROC_CATEGORY_PO);
constexpr CategoryMask kSymbol = bit(UTF8PROC_CATEGORY_SM) | bit(UTF8PROC_CATEGORY_SC) |
                                 bit(UTF8PROC_CATEGORY_SK) | bit(UTF8PROC_CATEGORY_SO);
constexpr CategoryMask kSeparator =
    bit(UTF8PROC_CATEGORY_ZS) | bit(UTF8PROC_CATEGORY_ZL) | bit(UTF8PROC_CATEGORY_ZP);
constexpr CategoryMask kOther = bit(UTF8PROC_CATEGORY_CC) | bit(kNextLineCategory) |
                                bit(UTF8PROC_CATEGORY_CF) | bit(UTF8PROC_CATEGORY_CS) |
                                bit(UTF8PROC_CATEGORY_CO) | bit(UTF8PROC_CATEGORY_CN);
constexpr CategoryMask kAllCategories = (CategoryMask{1} << kCategoryCount) - 1;

struct Property {
  std::string_view name;
  CategoryMask mask;
};

constexpr Property kProperties[] = {
    {"L", kLetter},
    {"Lu", bit(UTF8PROC_CATEGORY_LU)},
    {"Ll", bit(UTF8PROC_CATEGORY_LL)},
    {"Lt", bit(UTF8PROC_CATEGORY_LT)},
    {"Lm", bit(UTF8PROC_CATEGORY_LM)},
    {"Lo", bit(UTF8PROC_CATEGORY_LO)},
    {"M", kMark},
    {"Mn", bit(UTF8PROC_CATEGORY_MN)},
    {"Mc", bit(UTF8PROC_CATEGORY_MC)},
    {"Me", bit(UTF8PROC_CATEGORY_ME)},
    {"N", kNumber},
    {"Nd", bit(UTF8PROC_CATEGORY_ND)},
    {"Nl", bit(UTF8PROC_CATEGORY_NL)},
    {"No", bit(UTF8PROC_CATEGORY_NO)},
    {"P", kPunctuation},
    {"Pc", bit(UTF8PROC_CATEGORY_PC)},
    {"Pd", bit(UTF8PROC_CATEGORY_PD)},
    {"Ps", bit(UTF8PROC_CATEGORY_PS)},
    {"Pe", bit(UTF8PROC_CATEGORY_PE)},
    {"Pi", bit(UTF8PROC_CATEGORY_PI)},
    {"Pf", bit(UTF8PROC_CATEGORY_PF)},
    {"Po", bit(UTF8PROC_CATEGORY_PO)},
    {"S", kSymbol},
    {"Sm", bit(UTF8PROC_CATEGORY_SM)},
    {"Sc", bit(UTF8PROC_CATEGORY_SC)},
    {"Sk", bit(UTF8PROC_CATEGORY_SK)},
    {"So", bit(UTF8PROC_CATEGORY_SO)},
    {"Z", kSeparator},
    {"Zs", bit(UTF8PROC_CATEGORY_ZS)},
    {"Zl", bit(UTF8PROC_CATEGORY_ZL)},
    {"Zp", bit(UTF8PROC_CATEGORY_ZP)},
    {"C", kOther},
    {"Cc", bit(UTF8PROC_CATEGORY_CC) | bit(kNextLineCategory)},
    {"Cf", bit(UTF8PROC_CATEGORY_CF)},
};

// Characters that Unicode 15.1 and 16 added. Debian 12's utf8proc knows version 15 and the
// reference library's regular expressions know 16. Made by comparing the two for every character.
struct CategoryRange {
  char32_t first;
  char32_t last;
  int8_t category;
};

constexpr int8_t kLL = UTF8PROC_CATEGORY_LL;
constexpr int8_t kLM = UTF8PROC_CATEGORY_LM;
constexpr int8_t kLO = UTF8PROC_CATEGORY_LO;
constexpr int8_t kLU = UTF8PROC_CATEGORY_LU;
constexpr int8_t kMC = UTF8PROC_CATEGORY_MC;
constexpr int8_t kMN = UTF8PROC_CATEGORY_MN;
constexpr int8_t kND = UTF8PROC_CATEGORY_ND;
constexpr int8_t kPD = UTF8PROC_CATEGORY_PD;
constexpr int8_t kPO = UTF8PROC_CATEGORY_PO;
constexpr int8_t kSM = UTF8PROC_CATEGORY_SM;
constexpr int8_t kSO = UTF8PROC_CATEGORY_SO;

constexpr CategoryRange kAfterUnicode15[] = {
    {0x0897, 0x0897, kMN},   {0x1B4E, 0x1B4F, kPO},   {0x1B7F, 0x1B7F, kPO},
    {0x1C89, 0x1C89, kLU},   {0x1C8A, 0x1C8A, kLL},   {0x2427, 0x2429, kSO},
    {0x2FFC, 0x2FFF, kSO},   {0x31E4, 0x31E5, kSO},   {0x31EF, 0x31EF, kSO},
    {0xA7CB, 0xA7CC, kLU},   {0xA7CD, 0xA7CD, kLL},   {0xA7DA, 0xA7DA, kLU},
    {0xA7DB, 0xA7DB, kLL},   {0xA7DC, 0xA7DC, kLU},   {0x105C0, 0x105F3, kLO},
    {0x10D40, 0x10D49, kND}, {0x10D4A, 0x10D4D, kLO}, {0x10D4E, 0x10D4E, kLM},
    {0x10D4F, 0x10D4F, kLO}, {0x10D50, 0x10D65, kLU}, {0x10D69, 0x10D6D, kMN},
    {0x10D6E, 0x10D6E, kPD}, {0x10D6F, 0x10D6F, kLM}, {0x10D70, 0x10D85, kLL},
    {0x10D8E, 0x10D8F, kSM}, {0x10EC2, 0x10EC4, kLO}, {0x10EFC, 0x10EFC, kMN},
    {0x11380, 0x11389, kLO}, {0x1138B, 0x1138B, kLO}, {0x1138E, 0x1138E, kLO},
    {0x11390, 0x113B5, kLO}, {0x113B7, 0x113B7, kLO}, {0x113B8, 0x113BA, kMC},
    {0x113BB, 0x113C0, kMN}, {0x113C2, 0x113C2, kMC}, {0x113C5, 0x113C5, kMC},
    {0x113C7, 0x113CA, kMC}, {0x113CC, 0x113CD, kMC}, {0x113CE, 0x113CE, kMN},
    {0x113CF, 0x113CF, kMC}, {0x113D0, 0x113D0, kMN}, {0x113D1, 0x113D1, kLO},
    {0x113D2, 0x113D2, kMN}, {0x113D3, 0x113D3, kLO}, {0x113D4, 0x113D5, kPO},
    {0x113D7, 0x113D8, kPO}, {0x113E1, 0x113E2, kMN}, {0x116D0, 0x116E3, kND},
    {0x11BC0, 0x11BE0, kLO}, {0x11BE1, 0x11BE1, kPO}, {0x11BF0, 0x11BF9, kND},
    {0x11F5A, 0x11F5A, kMN}, {0x13460, 0x143FA, kLO}, {0x16100, 0x1611D, kLO},
    {0x1611E, 0x16129, kMN}, {0x1612A, 0x1612C, kMC}, {0x1612D, 0x1612F, kMN},
    {0x16130, 0x16139, kND}, {0x16D40, 0x16D42, kLM}, {0x16D43, 0x16D6A, kLO},
    {0x16D6B, 0x16D6C, kLM}, {0x16D6D, 0x16D6F, kPO}, {0x16D70, 0x16D79, kND},
    {0x18CFF, 0x18CFF, kLO}, {0x1CC00, 0x1CCEF, kSO}, {0x1CCF0, 0x1CCF9, kND},
    {0x1CD00, 0x1CEB3, kSO}, {0x1E5D0, 0x1E5ED, kLO}, {0x1E5EE, 0x1E5EF, kMN},
    {0x1E5F0, 0x1E5F0, kLO}, {0x1E5F1, 0x1E5FA, kND}, {0x1E5FF, 0x1E5FF, kPO},
    {0x1F8B2, 0x1F8BB, kSO}, {0x1F8C0, 0x1F8C1, kSO}, {0x1FA89, 0x1FA89, kSO},
    {0x1FA8F, 0x1FA8F, kSO}, {0x1FABE, 0x1FABE, kSO}, {0x1FAC6, 0x1FAC6, kSO},
    {0x1FADC, 0x1FADC, kSO}, {0x1FADF, 0x1FADF, kSO}, {0x1FAE9, 0x1FAE9, kSO},
    {0x1FBCB, 0x1FBEF, kSO}, {0x2EBF0, 0x2EE5D, kLO},
};

constexpr int ascii_category(char c) {
  if (c < ' ' || c == 0x7F) return UTF8PROC_CATEGORY_CC;
  if (c >= '0' && c <= '9') return UTF8PROC_CATEGORY_ND;
  if (c >= 'A' && c <= 'Z') return UTF8PROC_CATEGORY_LU;
  if (c >= 'a' && c <= 'z') return UTF8PROC_CATEGORY_LL;
  switch (c) {
    case ' ':
      return UTF8PROC_CATEGORY_ZS;
    case '_':
      return UTF8PROC_CATEGORY_PC;
    case '-':
      return UTF8PROC_CATEGORY_PD;
    case '(':
    case '[':
    case '{':
      return UTF8PROC_CATEGORY_PS;
    case ')':
    case ']':
    case '}':
      return UTF8PROC_CATEGORY_PE;
    case '$':
      return UTF8PROC_CATEGORY_SC;
    case '+':
    case '<':
    case '=':
    case '>':
    case '|':
    case '~':
      return UTF8PROC_CATEGORY_SM;
    case '^':
    case '`':
      return UTF8PROC_CATEGORY_SK;
    default:
      return UTF8PROC_CATEGORY_PO;
  }
}

// The ASCII characters of each category, as bitmaps.
using AsciiSet = std::array<uint64_t, 2>;

constexpr std::array<AsciiSet, kCategoryCount> make_ascii_of_category() {
  std::array<AsciiSet, kCategoryCount> sets{};
  for (int c = 0; c < 128; ++c) {
    sets[static_cast<size_t>(ascii_category(static_cast<char>(c)))][c >> 6] |= uint64_t{1}
                                                                               << (c & 63);
  }
  return sets;
}

constexpr std::array<AsciiSet, kCategoryCount> kAsciiOfCategory = make_ascii_of_category();
constexpr AsciiSet kAsciiWhiteSpace = {uint64_t{1} << ' ' | uint64_t{0x1F} << '\t', 0};

int category_after_unicode15(char32_t c) {
  const auto after = std::upper_bound(
      std::begin(kAfterUnicode15), std::end(kAfterUnicode15), c,
      [](char32_t value, const CategoryRange& range) { return value < range.first; });
  if (after == std::begin(kAfterUnicode15) || c > after[-1].last) return UTF8PROC_CATEGORY_CN;
  return after[-1].category;
}

}  // namespace

int category_of(char32_t c) {
  if (c == 0x85) return kNextLineCategory;
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_CN ? category_after_unicode15(c) : category;
}

CategoryMask property_mask(std::string_view name) {
  for (const Property& property : kProperties) {
    if (property.name == name) return property.mask;
  }
  return 0;
}

CategoryMask white_space_mask() { return kSeparator | bit(kNextLineCategory); }

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return (category_bit(c) & white_space_mask()) != 0;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c == '_' || (c > ' ' && c < 0x7F && !is_word_character(c));
  return ((category_bit(c) & kPunctuation) != 0) != in_ranges(kOtherPunctuation, c);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return ((category_bit(c) & kNumber) != 0) != in_ranges(kOtherDigits, c);
}

bool is_word_character(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  constexpr CategoryMask kWord = kLetter | kMark | bit(UTF8PROC_CATEGORY_ND) |
                                 bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_PC);
  const bool is_circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                          (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return is_circled || c == 0x200C || c == 0x200D || (category_bit(c) & kWord) != 0;
}

void CharClass::add_range(char32_t first, char32_t last) {
  CHECK(first <= last);
  for (char32_t c = first; c <= last && c < 0x80; ++c) set_ascii(c);
  if (last < 0x80) return;
  ranges_.emplace_back(first < 0x80 ? 0x80 : first, last);
}

void CharClass::add_categories(CategoryMask mask) {
  for (int category = 0; category < kCategoryCount; ++category) {
    if ((mask >> category & 1) == 0) continue;
    ascii_[0] |= kAsciiOfCategory[category][0];
    ascii_[1] |= kAsciiOfCategory[category][1];
  }
  categories_ |= mask;
}

void CharClass::add_white_space() {
  ascii_[0] |= kAsciiWhiteSpace[0];
  ascii_[1] |= kAsciiWhiteSpace[1];
  categories_ |= white_space_mask();
}

void CharClass::add_non_white_space() {
  ascii_[0] |= ~kAsciiWhiteSpace[0];
  ascii_[1] |= ~kAsciiWhiteSpace[1];
  categories_ |= kAllCategories & ~white_space_mask();
}

void CharClass::negate() {
  CHECK(!ranges_negated_);
  ascii_[0] = ~ascii_[0];
  ascii_[1] = ~ascii_[1];
  if (ranges_.empty()) {
    categories_ = kAllCategories & ~categories_;
  } else {
    ranges_negated_ = true;
  }
}

bool CharClass::contains(char32_t c) const {
  if (c < 0x80) return ascii_contains(c);
  bool found = (category_bit(c) & categories_) != 0;
  for (const auto& [first, last] : ranges_) found = found || (c >= first && c <= last);
  return found != ranges_negated_;
}

}  // namespace kvikk
