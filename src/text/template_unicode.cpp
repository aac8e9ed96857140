// Python's character classes and case mappings, by utf8proc's tables plus the few places where one
// character becomes several (template_case_table.h).

#include "text/template_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "text/template_case_table.h"

namespace kvikk::jinja {
namespace {

constexpr uint32_t kByteEscape = 0xDC00;  // + byte: a byte that is no valid UTF-8

// The code point that starts at `at`, or that byte alone.
CodePoint decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(at);
  const CodePoint lone{kByteEscape + lead, 1};
  const uint32_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + bytes > text.size()) return lone;
  uint32_t value = lead & (0x7Fu >> bytes);
  for (uint32_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return lone;
    value = value << 6 | (byte(at + i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (overlong || surrogate || value > 0x10FFFF) return lone;
  return {value, bytes};
}

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool in_range(uint32_t c, uint32_t low, uint32_t high) { return c >= low && c <= high; }

template <size_t N>
bool in_ranges(uint32_t c, const uint32_t (&ranges)[N][2]) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const uint32_t(&r)[2]) { return in_range(c, r[0], r[1]); });
}

// Digits that are not decimal: superscripts, circled, historic (Unicode Numeric_Type=Digit).
constexpr uint32_t kOtherDigits[][2] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

// Letters and marks that are lower or upper case without being of that category.
constexpr uint32_t kOtherLower[][2] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
    {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
    {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
    {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
};
constexpr uint32_t kOtherUpper[][2] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
};

// The ideographs that are numbers.
constexpr std::u32string_view kNumberIdeographs =
    U"\u3405\u3483\u382A\u3B4D\u4E00\u4E03\u4E07\u4E09\u4E5D\u4E8C\u4E94\u4E96\u4EBF\u4EC0\u4EDF"
    U"\u4EE8\u4F0D\u4F70\u5104\u5146\u5169\u516B\u516D\u5341\u5343\u5344\u5345\u534C\u53C1\u53C2"
    U"\u53C3\u53C4\u56DB\u58F1\u58F9\u5E7A\u5EFE\u5EFF\u5F0C\u5F0D\u5F0E\u5F10\u62FE\u634C\u67D2"
    U"\u6F06\u7396\u767E\u8086\u842C\u8CAE\u8CB3\u8D30\u9621\u9646\u964C\u9678\u96F6\uF96B\uF973"
    U"\uF978\uF9B2\uF9D1\uF9D3\uF9FD\U00020001\U00020064\U000200E2\U00020121\U0002092A\U00020983"
    U"\U0002098C\U0002099C\U00020AEA\U00020AFD\U00020B19\U00022390\U00022998\U00023B1B\U0002626D"
    U"\U0002F890";

bool is_number_ideograph(uint32_t c) {
  return c >= 0x3400 && kNumberIdeographs.find(static_cast<char32_t>(c)) != kNumberIdeographs.npos;
}

bool is_cased(uint32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

// What does not end a word when the final sigma looks for the word's end.
bool is_case_ignorable(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr uint32_t kPunctuation[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                       0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                       0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kPunctuation), std::end(kPunctuation), c) != std::end(kPunctuation);
}

constexpr uint32_t kCapitalSigma = 0x3A3;

// A capital sigma that ends a word has its own small letter.
bool is_final_sigma(std::string_view text, size_t at) {
  bool after_letter = false;
  for (size_t i = at; i > 0;) {
    const CodePoint c = code_point_before(text, i);
    i -= c.bytes;
    if (is_case_ignorable(c.value)) continue;
    after_letter = is_cased(c.value);
    break;
  }
  if (!after_letter) return false;
  for (size_t i = at + 2; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.bytes;
    if (is_case_ignorable(c.value)) continue;
    return !is_cased(c.value);
  }
  return true;
}

template <size_t N>
bool append_special(std::string& out, const SpecialCase (&table)[N], uint32_t c) {
  const auto* found =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const SpecialCase& entry, uint32_t value) { return entry.from < value; });
  if (found == std::end(table) || found->from != c) return false;
  for (uint32_t mapped : found->to) {
    if (mapped != 0) append_code_point(out, mapped);
  }
  return true;
}

void append_upper(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (!append_special(out, kSpecialUpper, c)) {
    append_code_point(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<int32_t>(c))));
  }
}

void append_title(std::string& out, uint32_t c) {
  if (!append_special(out, kSpecialTitle, c)) {
    append_code_point(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<int32_t>(c))));
  }
}

void append_lower(std::string& out, std::string_view text, size_t at, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == kCapitalSigma) {
    append_code_point(out, is_final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {  // the dotted capital I keeps its dot
    out += "i\xCC\x87";
  } else {
    append_code_point(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
  }
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  return decode(text, at);
}

CodePoint code_point_before(std::string_view text, size_t at) {
  for (size_t back = 2; back <= 4 && back <= at; ++back) {
    if (static_cast<unsigned char>(text[at - 1]) < 0x80) break;
    const CodePoint c = code_point_at(text, at - back);
    if (c.bytes == back) return c;
  }
  return {code_point_at(text.substr(at - 1, 1), 0).value, 1};
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    i += static_cast<unsigned char>(text[i]) < 0x80 ? 1 : decode(text, i).bytes;
  }
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_at(text, at).bytes;
  return at;
}

void append_code_point(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text.push_back(static_cast<char>(c));
  } else if (in_range(c, kByteEscape + 0x80, kByteEscape + 0xFF)) {
    text.push_back(static_cast<char>(c - kByteEscape));
  } else if (c < 0x800) {
    text.push_back(static_cast<char>(0xC0 | c >> 6));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | c >> 12));
    text.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    text.push_back(static_cast<char>(0xF0 | c >> 18));
    text.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

bool is_space(uint32_t c) {
  if (c < 0x80) return in_range(c, 9, 13) || in_range(c, 0x1C, 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || in_range(c, 0x2000, 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(uint32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(uint32_t c) { return is_decimal(c) || in_ranges(c, kOtherDigits); }

bool is_numeric(uint32_t c) {
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || is_number_ideograph(c);
}

bool is_word(uint32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_lower(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(c, kOtherLower);
}

bool is_upper(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(c, kOtherUpper);
}

bool is_title(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_identifier_start(uint32_t c) {
  return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(uint32_t c) {
  if (is_identifier_start(c)) return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0xB7 || c == 0x387;
  }
}

int decimal_value(uint32_t c) {
  if (c < 0x80) return in_range(c, '0', '9') ? static_cast<int>(c - '0') : -1;
  if (!is_decimal(c)) return -1;
  // Decimal digits come in runs of ten that start at the zero; the mathematical ones follow each
  // other without a gap.
  if (in_range(c, 0x1D7CE, 0x1D7FF)) return static_cast<int>((c - 0x1D7CE) % 10);
  uint32_t zero = c;
  while (c - zero < 9 && is_decimal(zero - 1)) --zero;
  return static_cast<int>(c - zero);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    append_upper(out, c.value);
    i += c.bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    append_lower(out, text, i, c.value);
    i += c.bytes;
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (inside_word) {
      append_lower(out, text, i, c.value);
    } else {
      append_title(out, c.value);
    }
    inside_word = is_cased(c.value);
    i += c.bytes;
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (i == 0) {
      append_title(out, c.value);
    } else {
      append_lower(out, text, i, c.value);
    }
    i += c.bytes;
  }
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (is_upper(c.value)) {
      append_lower(out, text, i, c.value);
    } else if (is_lower(c.value)) {
      append_upper(out, c.value);
    } else {
      append_code_point(out, c.value);
    }
    i += c.bytes;
  }
  return out;
}

std::string to_casefold(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.bytes;
    utf8proc_int32_t folded[8];
    int last_class = UTF8PROC_BOUNDCLASS_START;
    const auto count = c.value >= kByteEscape && c.value < 0xE000
                           ? -1
                           : utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), folded,
                                                     8, UTF8PROC_CASEFOLD, &last_class);
    if (count < 0 || count > 8) {
      append_code_point(out, c.value);
      continue;
    }
    for (utf8proc_ssize_t k = 0; k < count; ++k) {
      append_code_point(out, static_cast<uint32_t>(folded[k]));
    }
  }
  return out;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_space(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = code_point_before(text, text.size());
    if (!is_space(c.value)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

}  // namespace kvikk::jinja
