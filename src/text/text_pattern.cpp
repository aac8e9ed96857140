// An expression that matches nothing in particular, such as 'x*', goes to the general engine, which
// knows empty matches.
#include "text/text_pattern.h"

namespace kvikk {

Result<TextPattern> TextPattern::regex(std::string_view regex) {
  TextPattern pattern;
  Result<SplitPattern> fast = SplitPattern::compile(regex);
  if (fast.ok()) {
    pattern.fast_ = std::move(*fast);
    return pattern;
  }
  TRY_ASSIGN(Regex general, Regex::compile(regex));
  pattern.general_ = std::make_shared<const Regex>(std::move(general));
  return pattern;
}

Result<TextPattern> TextPattern::literal(std::string_view text) {
  if (text.empty()) return unsupported("an empty text to look for");
  if (text.size() > kLiteralBytesMax) {
    return unsupported("a text to look for of " + std::to_string(text.size()) + " bytes; at most " +
                       std::to_string(kLiteralBytesMax) + " are supported");
  }
  TextPattern pattern;
  pattern.literal_ = text;
  return pattern;
}

TextPattern TextPattern::characters(Predicate is_match) {
  TextPattern pattern;
  pattern.is_match_ = is_match;
  return pattern;
}

std::string TextPattern::replace(std::string_view text, std::string_view replacement) const {
  std::string out;
  out.reserve(text.size());
  split(text,
        [&](std::string_view piece, bool is_match) { out += is_match ? replacement : piece; });
  return out;
}

}  // namespace kvikk
