// Categories come from utf8proc. Only what the tokenizers of published models need is here.
#include "text/char_class.h"

#include <utf8proc.h>

#include "base/check.h"

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
    {"N", kNumber},
    {"Nd", bit(UTF8PROC_CATEGORY_ND)},
    {"P", kPunctuation},
    {"S", kSymbol},
    {"Z", kSeparator},
};

}  // namespace

int category_of(char32_t c) {
  if (c == 0x85) return kNextLineCategory;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
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

void CharClass::add_range(char32_t first, char32_t last) {
  CHECK(first <= last);
  for (char32_t c = first; c <= last && c < 0x80; ++c) set_ascii(c);
  if (last < 0x80) return;
  ranges_.emplace_back(first < 0x80 ? 0x80 : first, last);
}

void CharClass::add_categories(CategoryMask mask) {
  for (char32_t c = 0; c < 0x80; ++c) {
    if (category_bit(c) & mask) set_ascii(c);
  }
  categories_ |= mask;
}

void CharClass::add_white_space() {
  for (char32_t c = 0; c < 0x80; ++c) {
    if (is_white_space(c)) set_ascii(c);
  }
  categories_ |= white_space_mask();
}

void CharClass::add_non_white_space() {
  for (char32_t c = 0; c < 0x80; ++c) {
    if (!is_white_space(c)) set_ascii(c);
  }
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
