// Compiles the regular expressions that split_pattern.h describes.
//
//   regex       := alternative ('|' alternative)*
//   alternative := (repeat | group | '$' | '(?!\S)')+
//   repeat      := (character | escape | '[' class ']') quantifier?
//   group       := ('(?:' | '(?i:' | '(') literals ('|' literals)* ')' '?'?    as a step
//   literals    := (character | escape | '[' class ']')+
//   quantifier  := ('?' | '*' | '+' | '{' n (',' m?)? '}') '+'?                '+': possessive
//   escape      := \s \S \r \n \t \p{Name} \uXXXX \x{XXXXX} or a backslash and punctuation
#include <optional>
#include <string>

#include "base/check.h"
#include "text/regex_cursor.h"
#include "text/split_pattern.h"

namespace kvikk {

class SplitPatternParser : private RegexCursor {
 public:
  explicit SplitPatternParser(std::string_view regex) : RegexCursor(regex) {}

  Result<SplitPattern> parse() {
    TRY(check_text(SplitPattern::kRegexBytesMax));
    do {
      TRY(parse_alternative());
    } while (take("|"));
    if (!at_end()) return error("unbalanced ')'");
    pattern_.finish();
    return std::move(pattern_);
  }

 private:
  using Step = SplitPattern::Step;

  Status parse_alternative() {
    if (pattern_.alternatives_.size() == SplitPattern::kAlternativesMax) {
      return error("too many alternatives");
    }
    SplitPattern::Alternative alternative;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (alternative.steps.size() == SplitPattern::kStepsMax) return error("too many steps");
      TRY_ASSIGN(Step step, parse_step());
      alternative.steps.push_back(step);
    }
    TRY_ASSIGN(alternative.first_classes, first_classes(alternative));
    const Step& first = alternative.steps.front();
    alternative.leads_with_run = first.kind == Step::Kind::kRepeat && first.min <= 1 &&
                                 first.max == UINT32_MAX && !first.possessive;
    pattern_.alternatives_.push_back(std::move(alternative));
    return ok_status();
  }

  Result<Step> parse_step() {
    Step step;
    if (take("(?!\\S)")) {
      step.kind = Step::Kind::kNotNonSpace;
      return step;
    }
    if (take("$")) {
      step.kind = Step::Kind::kLineEnd;
      return step;
    }
    if (take("(?i:")) return parse_group(true);
    if (take("(?:")) return parse_group(false);
    if (take("(?")) return error("this kind of group is not supported");
    if (take("(")) return parse_group(false);
    TRY_ASSIGN(step.class_index, parse_class_index(false));
    TRY(parse_quantifier(&step));
    return step;
  }

  Result<Step> parse_group(bool ignore_case) {
    Step step;
    step.kind = Step::Kind::kOneOf;
    step.first_literal = pattern_.literals_.size();
    do {
      std::vector<uint32_t> literal;
      while (!at_end() && peek() != '|' && peek() != ')') {
        TRY_ASSIGN(const uint32_t class_index, parse_class_index(ignore_case));
        literal.push_back(class_index);
      }
      if (literal.empty()) return error("an empty alternative in a group");
      pattern_.literals_.push_back(std::move(literal));
    } while (take("|"));
    if (!take(")")) return error("a group without ')'");
    step.last_literal = pattern_.literals_.size();
    if (take("?")) step.min = 0;
    return step;
  }

  Status parse_quantifier(Step* step) {
    if (take("?")) {
      step->min = 0;
    } else if (take("*")) {
      step->min = 0;
      step->max = UINT32_MAX;
    } else if (take("+")) {
      step->max = UINT32_MAX;
    } else if (take("{")) {
      if (peek() == ',') return error("this operator is not supported here");
      TRY_ASSIGN(const Range range, parse_range());
      step->min = range.min;
      step->max = range.max;
      return ok_status();
    } else {
      return ok_status();
    }
    step->possessive = take("+");
    if (peek() == '?') return error("lazy repetition is not supported");
    return ok_status();
  }

  // One character, escape or bracketed class, as an index into the pattern's classes.
  Result<uint32_t> parse_class_index(bool ignore_case) {
    CharClass set;
    if (ignore_case && (peek() == '[' || peek() == '\\')) {
      return error("classes without case are not supported");
    }
    if (take("[")) {
      TRY(parse_bracket(&set));
    } else if (peek() == '\\') {
      TRY_ASSIGN(const std::optional<char32_t> c, parse_escape(&set));
      if (c.has_value()) set.add_char(*c);
    } else if (std::string_view("?*+{}^.").find(peek()) != std::string_view::npos) {
      return error("this operator is not supported here");
    } else {
      const char32_t c = take_char();
      set.add_char(c);
      if (ignore_case) add_other_case(c, &set);
    }
    for (size_t i = 0; i < pattern_.classes_.size(); ++i) {
      if (pattern_.classes_[i] == set) return static_cast<uint32_t>(i);
    }
    if (pattern_.classes_.size() == SplitPattern::kClassesMax) return error("too many classes");
    pattern_.classes_.push_back(std::move(set));
    return static_cast<uint32_t>(pattern_.classes_.size() - 1);
  }

  // Case folding for the ASCII letters; two of them have a third form.
  static void add_other_case(char32_t c, CharClass* set) {
    if (c >= 'a' && c <= 'z') set->add_char(c - 'a' + 'A');
    if (c >= 'A' && c <= 'Z') set->add_char(c - 'A' + 'a');
    if (c == 's' || c == 'S') set->add_char(0x17F);   // long s
    if (c == 'k' || c == 'K') set->add_char(0x212A);  // kelvin sign
  }

  Status parse_bracket(CharClass* set) {
    const bool negated = take("^");
    bool first = true;
    while (first || peek() != ']') {
      first = false;
      if (at_end()) return error("a '[' without ']'");
      if (peek() == '[' || peek("&&")) {
        return error("operations on classes are not supported");
      }
      TRY_ASSIGN(const std::optional<char32_t> low, parse_bracket_item(set));
      if (!low.has_value()) continue;
      if (!at_range_dash()) {
        set->add_char(*low);
        continue;
      }
      take("-");
      TRY_ASSIGN(const std::optional<char32_t> high, parse_bracket_item(set));
      if (!high.has_value() || *high < *low) return error("a range that ends before it begins");
      set->add_range(*low, *high);
    }
    take("]");
    if (negated) set->negate();
    return ok_status();
  }

  Result<std::optional<char32_t>> parse_bracket_item(CharClass* set) {
    if (peek() == '\\') return parse_escape(set);
    if (at_end()) return error("a '[' without ']'");
    return std::optional<char32_t>(take_char());
  }

  // The character that the escape names, or nothing where it names a set and was added to `set`.
  Result<std::optional<char32_t>> parse_escape(CharClass* set) {
    take("\\");
    if (at_end()) return error("it ends in a backslash");
    const char32_t c = take_char();
    switch (c) {
      case 's':
        set->add_white_space();
        return std::optional<char32_t>();
      case 'S':
        set->add_non_white_space();
        return std::optional<char32_t>();
      case 'r':
        return std::optional<char32_t>('\r');
      case 'n':
        return std::optional<char32_t>('\n');
      case 't':
        return std::optional<char32_t>('\t');
      case 'p':
        return parse_property(set);
      case 'u': {
        TRY_ASSIGN(const char32_t value, parse_hex(4, 4));
        return std::optional<char32_t>(value);
      }
      case 'x': {
        if (!take("{")) return error("\\x needs braces");
        TRY_ASSIGN(const char32_t value, parse_hex(1, 6));
        if (!take("}")) return error("a '{' without '}'");
        return std::optional<char32_t>(value);
      }
      default:
        break;
    }
    const bool is_punctuation = c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') &&
                                !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
    if (!is_punctuation) return error("this escape is not supported");
    return std::optional<char32_t>(c);
  }

  Result<std::optional<char32_t>> parse_property(CharClass* set) {
    if (!take("{")) return error("\\p needs braces");
    TRY_ASSIGN(const std::string_view name, take_until("}", "a '{' without '}'"));
    const CategoryMask mask = property_mask(name);
    if (mask == 0) return error("this property is not supported");
    set->add_categories(mask);
    return std::optional<char32_t>();
  }

  // What a match can begin with; an alternative that could match nothing is refused.
  Result<uint64_t> first_classes(const SplitPattern::Alternative& alternative) const {
    uint64_t classes = 0;
    for (const Step& step : alternative.steps) {
      if (step.kind == Step::Kind::kRepeat) {
        classes |= uint64_t{1} << step.class_index;
      } else if (step.kind == Step::Kind::kOneOf) {
        for (uint32_t i = step.first_literal; i < step.last_literal; ++i) {
          classes |= uint64_t{1} << pattern_.literals_[i][0];
        }
      } else {
        continue;
      }
      if (step.min > 0) return classes;
    }
    return error("an alternative that can match nothing");
  }

  SplitPattern pattern_;
};

Result<SplitPattern> SplitPattern::compile(std::string_view regex) {
  return SplitPatternParser(regex).parse();
}

}  // namespace kvikk
