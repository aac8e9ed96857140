// Only the stretches around characters that can change are normalised, with utf8proc's
// decompositions and compositions. The canonical ordering is done here by a stable sort: utf8proc's
// own is quadratic in the number of marks in a row.
#include "text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode_age.h"
#include "text/utf8.h"

namespace kvikk {
namespace {

// The characters of combining class 0 that are the second of a canonical composition, in
// Unicode 15. Made by this, plus the vowels and final consonants of Hangul:
//   import unicodedata as u
//   for d in (u.decomposition(chr(c)).split() for c in range(0x110000)):
//     if len(d) == 2 and d[0][0] != "<" and u.combining(chr(int(d[1], 16))) == 0: print(d[1])
constexpr CharRange kComposeBackwards[] = {
    {0x09BE, 0x09BE},   {0x09D7, 0x09D7},   {0x0B3E, 0x0B3E},   {0x0B56, 0x0B57},
    {0x0BBE, 0x0BBE},   {0x0BD7, 0x0BD7},   {0x0CC2, 0x0CC2},   {0x0CD5, 0x0CD6},
    {0x0D3E, 0x0D3E},   {0x0D57, 0x0D57},   {0x0DCF, 0x0DCF},   {0x0DDF, 0x0DDF},
    {0x0FB5, 0x0FB5},   {0x0FB7, 0x0FB7},   {0x102E, 0x102E},   {0x1161, 0x1175},
    {0x11A8, 0x11C2},   {0x1B35, 0x1B35},   {0x11127, 0x11127}, {0x1133E, 0x1133E},
    {0x11357, 0x11357}, {0x114B0, 0x114B0}, {0x114BA, 0x114BA}, {0x114BD, 0x114BD},
    {0x115AF, 0x115AF},
};

// Combining marks that Unicode got after version 9, which is what the reference library's
// normaliser knows: to it, and so to the models that were trained with it, these do not combine.
// (U+11930, the one such character that composes, is left out above.) Made by comparing every
// character.
constexpr CharRange kMarksAfterUnicode9[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},
    {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

int combining_class(char32_t c) {
  const int value = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  return value != 0 && in_ranges(kMarksAfterUnicode9, c) ? 0 : value;
}

bool composes(UnicodeForm form) { return form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc; }
bool is_compatible(UnicodeForm form) {
  return form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
}

// Neither changed by the form nor able to change the character before it.
bool is_inert(char32_t c, UnicodeForm form) {
  if (c < (form == UnicodeForm::kNfc ? 0x300 : 0xA0)) return true;
  if (!composes(form) && c >= 0xAC00 && c <= 0xD7A3) return false;  // Hangul syllables have parts
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return property->decomp_seqindex == UINT16_MAX && combining_class(c) == 0 &&
         !in_ranges(kComposeBackwards, c);
}

void decompose(std::string_view text, UnicodeForm form, std::vector<utf8proc_int32_t>* out) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (is_compatible(form) ? UTF8PROC_COMPAT : 0));
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const DecodedChar c = decode_valid_utf8(p);
    p += c.bytes;
    if (in_ranges(kNotDecomposed, c.code_point)) {
      out->push_back(static_cast<utf8proc_int32_t>(c.code_point));
      continue;
    }
    utf8proc_int32_t parts[18];  // of U+FDFA
    int boundary_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts,
                                std::size(parts), options, &boundary_class);
    CHECK(count > 0);
    CHECK(count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    out->insert(out->end(), parts, parts + count);
  }
}

void sort_marks(std::vector<utf8proc_int32_t>* chars) {
  for (auto begin = chars->begin(); begin != chars->end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, chars->end(),
                                  [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

void append_normalized(std::string_view stretch, UnicodeForm form, std::string* out) {
  std::vector<utf8proc_int32_t> chars;
  decompose(stretch, form, &chars);
  sort_marks(&chars);
  if (!composes(form)) {
    for (const utf8proc_int32_t c : chars) append_utf8(*out, static_cast<char32_t>(c));
    return;
  }
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(chars.data(), static_cast<utf8proc_ssize_t>(chars.size()), kOptions);
  CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(*out, static_cast<char32_t>(chars[static_cast<size_t>(i)]));
  }
}

// The first character at or after p that is not inert, and in *before the start of the character in
// front of it (p where there is none).
const char* find_active(const char* p, const char* end, UnicodeForm form, const char** before) {
  *before = p;
  while (p < end) {
    const DecodedChar c = decode_valid_utf8(p);
    if (!is_inert(c.code_point, form)) return p;
    *before = p;
    p += c.bytes;
  }
  return end;
}

}  // namespace

bool is_surely_normalized(std::string_view text, UnicodeForm form) {
  const char* const end = text.data() + text.size();
  const char* before;
  return find_active(text.data(), end, form, &before) == end;
}

std::string normalize_unicode(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const char* stretch;
    const char* q = find_active(p, end, form, &stretch);
    if (q == end) stretch = end;
    out.append(p, stretch);
    // The stretch ends where two inert characters meet: nothing composes across them.
    while (q < end) {
      const DecodedChar c = decode_valid_utf8(q);
      if (is_inert(c.code_point, form)) break;
      q += c.bytes;
    }
    if (stretch < q) append_normalized(std::string_view(stretch, q - stretch), form, &out);
    p = q;
  }
  return out;
}

}  // namespace kvikk
