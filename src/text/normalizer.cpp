// Characters are mapped one at a time, so every step is linear.
#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/char_class.h"
#include "text/piece_bpe.h"
#include "text/unicode_age.h"
#include "text/utf8.h"

namespace kvikk {
namespace {

// map(c, out) appends what becomes of the character c.
template <class Map>
std::string map_characters(std::string_view text, Map&& map) {
  std::string out;
  out.reserve(text.size());
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const DecodedChar c = decode_valid_utf8(p);
    map(c.code_point, std::string_view(p, c.bytes), &out);
    p += c.bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string_view, std::string* out) {
    if (c == 0x130) {  // the one character whose lower case is two
      out->append("i\u0307");
      return;
    }
    for (const LowerRange& range : kNewLower) {
      if (c < range.first || c > range.last) continue;
      append_utf8(*out, static_cast<char32_t>(static_cast<int32_t>(c) + range.distance));
      return;
    }
    append_utf8(*out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  });
}

bool is_combining_mark(char32_t c) {
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  const bool is_mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                       category == UTF8PROC_CATEGORY_ME;
  return is_mark != in_ranges(kOtherCombiningMarks, c);
}

bool is_nonspacing_mark(char32_t c) {
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category == UTF8PROC_CATEGORY_MN) != in_ranges(kOtherNonspacingMarks, c);
}

// Control characters, format characters and private use; BERT drops them.
bool is_bert_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  const bool is_control = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                          category == UTF8PROC_CATEGORY_CO;
  return is_control != in_ranges(kOtherControls, c);
}

bool is_chinese(char32_t c) {
  constexpr struct {
    char32_t first;
    char32_t last;
  } kBlocks[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                 {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& block) { return c >= block.first && c <= block.last; });
}

std::string normalize_bert(const Normalizer::Bert& options, std::string_view text) {
  std::string out = map_characters(text, [&](char32_t c, std::string_view own, std::string* to) {
    if (options.clean_text) {
      if (c == 0 || c == kReplacementCharacter || is_bert_control(c)) return;
      if (is_white_space(c)) {
        to->push_back(' ');
        return;
      }
    }
    const bool spaced = options.handle_chinese_chars && is_chinese(c);
    if (spaced) to->push_back(' ');
    to->append(own);
    if (spaced) to->push_back(' ');
  });
  if (options.strip_accents) {
    out = map_characters(normalize_unicode(out, UnicodeForm::kNfd),
                         [](char32_t c, std::string_view own, std::string* to) {
                           if (!is_nonspacing_mark(c)) to->append(own);
                         });
  }
  return options.lowercase ? to_lower(out) : out;
}

// The normalisation of "neural machine translation" vocabularies: some controls go, others and odd
// spaces become spaces.
std::string normalize_nmt(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string_view own, std::string* out) {
    const bool drops = (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                       c == 0x7F || c == 0x8F || c == 0x9F;
    if (drops) return;
    const bool is_space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                          (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                          c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    if (is_space) {
      out->push_back(' ');
    } else {
      out->append(own);
    }
  });
}

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const DecodedChar c = decode_valid_utf8(text.data());
    if (!is_white_space(c.code_point)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (is_utf8_continuation(text[begin])) --begin;
    if (!is_white_space(decode_valid_utf8(text.data() + begin).code_point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace

Status Normalizer::append(Step step) {
  if (steps_.size() == kStepsMax) {
    return unsupported("a normaliser of more than " + std::to_string(kStepsMax) + " steps");
  }
  steps_.push_back(std::move(step));
  return ok_status();
}

Status Normalizer::add(Step step, size_t growth) {
  TRY(growth_.add(growth));
  return append(std::move(step));
}

Status Normalizer::add_form(UnicodeForm form) {
  Step step;
  step.form = form;
  return add(std::move(step), form == UnicodeForm::kNfc ? 3 : 11);
}

Status Normalizer::add_lowercase() {
  Step step;
  step.kind = Kind::kLowercase;
  return add(std::move(step), 2);
}

Status Normalizer::add_strip(bool left, bool right) {
  Step step;
  step.kind = Kind::kStrip;
  step.left = left;
  step.right = right;
  return add(std::move(step), 1);
}

Status Normalizer::add_strip_accents() {
  Step step;
  step.kind = Kind::kStripAccents;
  return add(std::move(step), 1);
}

Status Normalizer::add_nmt() {
  Step step;
  step.kind = Kind::kNmt;
  return add(std::move(step), 1);
}

Status Normalizer::add_bert(Bert options) {
  Step step;
  step.kind = Kind::kBert;
  step.bert = options;
  return add(std::move(step), 6);
}

Status Normalizer::add_replace(TextPattern pattern, std::string_view replacement) {
  TRY(growth_.add_replacement(pattern.match_bytes(), replacement.size()));
  Step step;
  step.kind = Kind::kReplace;
  step.pattern = std::move(pattern);
  step.text = replacement;
  return append(std::move(step));
}

Status Normalizer::add_prepend(std::string_view prefix) {
  if (prefix.size() > kPrependBytesMax) {
    return unsupported("a prefix of " + std::to_string(prefix.size()) + " bytes; at most " +
                       std::to_string(kPrependBytesMax) + " are supported");
  }
  Step step;
  step.kind = Kind::kPrepend;
  step.text = prefix;
  return add(std::move(step), 1);
}

Status Normalizer::add_charsmap(Charsmap charsmap) {
  Step step;
  step.kind = Kind::kCharsmap;
  const size_t growth = charsmap.growth();
  step.charsmap = std::make_shared<const Charsmap>(std::move(charsmap));
  return add(std::move(step), growth);
}

Status Normalizer::add_write_bytes() {
  Step step;
  step.kind = Kind::kWriteBytes;
  return add(std::move(step), 2);
}

Status Normalizer::add_plain_spaces(bool prefix) {
  Step step;
  step.kind = Kind::kPlainSpaces;
  step.left = prefix;
  return add(std::move(step), 1);
}

bool Normalizer::writes_bytes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.kind == Kind::kWriteBytes; });
}

std::string_view Normalizer::apply(const Step& step, std::string_view text, TextArena* arena) {
  switch (step.kind) {
    case Kind::kForm:
      if (is_surely_normalized(text, step.form)) return text;
      return arena->keep(normalize_unicode(text, step.form));
    case Kind::kLowercase:
      return arena->keep(to_lower(text));
    case Kind::kStrip:
      return strip(text, step.left, step.right);
    case Kind::kStripAccents:
      return arena->keep(
          map_characters(text, [](char32_t c, std::string_view own, std::string* out) {
            if (!is_combining_mark(c)) out->append(own);
          }));
    case Kind::kNmt:
      return arena->keep(normalize_nmt(text));
    case Kind::kBert:
      return arena->keep(normalize_bert(step.bert, text));
    case Kind::kReplace:
      return arena->keep(step.pattern.replace(text, step.text));
    case Kind::kPrepend:
      return text.empty() ? text : arena->keep(step.text + std::string(text));
    case Kind::kCharsmap:
      return arena->keep(step.charsmap->normalize(text));
    case Kind::kWriteBytes:
      return arena->keep(write_bytes(text));
    case Kind::kPlainSpaces: {
      if (!step.left && text.find(PieceBpe::kSpaceMark) == std::string_view::npos) return text;
      std::string out = step.left ? " " : "";
      out += PieceBpe::with_plain_spaces(text);
      return arena->keep(std::move(out));
    }
  }
  return text;
}

bool Normalizer::keeps_first(std::string_view text) const {
  TextArena arena;
  std::string_view first = text.substr(0, decode_valid_utf8(text.data()).bytes);
  for (const Step& step : steps_) {
    if (step.kind == Kind::kPrepend || step.kind == Kind::kPlainSpaces) return true;
    first = step.kind == Kind::kStrip ? strip(first, step.left, false) : apply(step, first, &arena);
    if (first.empty()) return false;
  }
  return true;
}

std::string_view Normalizer::normalize(std::string_view text, TextArena* arena) const {
  for (const Step& step : steps_) text = apply(step, text, arena);
  return text;
}

}  // namespace kvikk
