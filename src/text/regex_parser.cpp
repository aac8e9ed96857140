// Parses a regular expression to a tree; regex_builder.cpp makes the automaton.
//
//   choice   := sequence ('|' sequence)*
//   sequence := (atom quantifier*)*
//   atom     := character | '.' | escape | class | '^' | '$' | group
//   group    := '(' ('?:' | '?i:' | '?=' | '?!' | '?<=' | '?<!' | '?<name>')? choice ')'
//   class    := '[' '^'? item+ ('&&' item+)* ']'
#include <optional>
#include <string>

#include "text/regex.h"
#include "text/regex_tree.h"
#include "text/utf8.h"

namespace kvikk {

bool RegexTree::can_be_empty() const {
  switch (kind) {
    case Kind::kSet:
      return false;
    case Kind::kCondition:
      return true;
    case Kind::kRepeat:
      return min == 0 || children[0].can_be_empty();
    case Kind::kChoice:
      for (const RegexTree& child : children) {
        if (child.can_be_empty()) return true;
      }
      return false;
    case Kind::kSequence:
      break;
  }
  for (const RegexTree& child : children) {
    if (!child.can_be_empty()) return false;
  }
  return true;
}

class RegexParser {
 public:
  RegexParser(std::string_view regex, std::vector<CharSet>* sets) : regex_(regex), sets_(sets) {}

  Result<RegexTree> parse() {
    if (regex_.empty()) return error("it is empty");
    if (regex_.size() > Regex::kRegexBytesMax) return error("it is too long");
    if (!is_valid_utf8(regex_)) return error("it is not UTF-8");
    TRY_ASSIGN(RegexTree tree, parse_choice(0));
    if (!at_end()) return error("unbalanced ')'");
    return tree;
  }

 private:
  using Kind = Regex::Kind;

  Status error(std::string_view what) const {
    return unsupported("regular expression '" + std::string(regex_) + "', byte " +
                       std::to_string(at_) + ": " + std::string(what));
  }
  bool at_end() const { return at_ == regex_.size(); }
  char peek() const { return at_end() ? '\0' : regex_[at_]; }
  bool take(std::string_view token) {
    if (regex_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  char32_t take_char() {
    const DecodedChar c = decode_valid_utf8(regex_.data() + at_);
    at_ += c.bytes;
    return c.code_point;
  }

  Result<RegexTree> set_node(CharSet set) {
    if (ignore_case_) set = set.without_case();
    RegexTree node;
    node.kind = RegexTree::Kind::kSet;
    for (; node.set < sets_->size(); ++node.set) {
      if ((*sets_)[node.set] == set) return node;
    }
    if (sets_->size() + 1 >= CharPartition::kSetsMax) return error("too many character classes");
    sets_->push_back(std::move(set));
    return node;
  }
  static RegexTree condition(Kind kind) {
    RegexTree node;
    node.kind = RegexTree::Kind::kCondition;
    node.condition = static_cast<int>(kind);
    return node;
  }

  Result<RegexTree> parse_choice(int depth) {
    if (depth > Regex::kDepthMax) return error("groups are nested too deeply");
    RegexTree choice;
    choice.kind = RegexTree::Kind::kChoice;
    if (take("(?i)")) ignore_case_ = true;  // to the end of the group
    do {
      TRY_ASSIGN(RegexTree sequence, parse_sequence(depth));
      choice.children.push_back(std::move(sequence));
    } while (take("|"));
    if (choice.children.size() > 1) return choice;
    RegexTree only = std::move(choice.children[0]);
    return only;
  }

  Result<RegexTree> parse_sequence(int depth) {
    RegexTree sequence;
    while (!at_end() && peek() != '|' && peek() != ')') {
      TRY_ASSIGN(RegexTree atom, parse_atom(depth));
      TRY_ASSIGN(RegexTree repeated, parse_quantifiers(std::move(atom)));
      sequence.children.push_back(std::move(repeated));
    }
    return sequence;
  }

  Result<RegexTree> parse_atom(int depth) {
    if (peek() == '(') return parse_group(depth);
    if (peek() == '\\') return parse_atom_escape();
    if (take("[")) {
      TRY_ASSIGN(CharSet set, parse_class(0));
      return set_node(std::move(set));
    }
    if (take(".")) return set_node(CharSet::of('\n').complement());
    if (take("^")) return condition(Kind::kLineBegin);
    if (take("$")) return condition(Kind::kLineEnd);
    if (peek() == '?' || peek() == '*' || peek() == '+') return error("a repetition of nothing");
    return set_node(CharSet::of(take_char()));
  }

  Result<RegexTree> parse_atom_escape() {
    if (take("\\b")) return condition(Kind::kWordEdge);
    if (take("\\B")) return condition(Kind::kNotWordEdge);
    if (take("\\A")) return condition(Kind::kTextBegin);
    if (take("\\z")) return condition(Kind::kTextEnd);
    if (take("\\Z")) return condition(Kind::kTextEndOrLastLine);
    if (take("\\w")) return set_node(CharSet::word_and_fractions());
    if (take("\\W")) return set_node(CharSet::word_and_fractions().complement());
    TRY_ASSIGN(Escape escape, parse_escape());
    return set_node(std::move(escape.set));
  }

  // What follows '('; kMatch: no condition. Sets ignore_case_.
  Result<Kind> parse_group_kind() {
    if (take("?:")) return Kind::kMatch;
    if (take("?i:")) {
      ignore_case_ = true;
      return Kind::kMatch;
    }
    if (take("?-i:")) {
      ignore_case_ = false;
      return Kind::kMatch;
    }
    if (take("?=")) return Kind::kAhead;
    if (take("?!")) return Kind::kNotAhead;
    if (take("?<=")) return Kind::kBehind;
    if (take("?<!")) return Kind::kNotBehind;
    if (take("?<") || take("?P<")) {
      const size_t close = regex_.find('>', at_);
      if (close == std::string_view::npos) return error("a group's name without '>'");
      at_ = close + 1;
      return Kind::kMatch;
    }
    if (peek() == '?') return error("this kind of group is not supported");
    return Kind::kMatch;
  }

  Result<RegexTree> parse_group(int depth) {
    take("(");
    const bool outer_case = ignore_case_;
    TRY_ASSIGN(const Kind look, parse_group_kind());
    TRY_ASSIGN(RegexTree body, parse_choice(depth + 1));
    if (!take(")")) return error("a group without ')'");
    ignore_case_ = outer_case;
    if (look == Kind::kMatch) return body;
    RegexTree node = condition(look);
    if (look == Kind::kAhead || look == Kind::kNotAhead) {
      node.children.push_back(std::move(body));
      return node;
    }
    const bool is_one = body.children.size() == 1 && body.children[0].kind == RegexTree::Kind::kSet;
    if (!is_one) return error("lookbehind of other than one character is not supported");
    node.set = body.children[0].set;
    return node;
  }

  Result<RegexTree> parse_quantifiers(RegexTree atom) {
    constexpr int kQuantifiersMax = 3;
    for (int count = 0;; ++count) {
      RegexTree repeat;
      repeat.kind = RegexTree::Kind::kRepeat;
      repeat.min = 0;
      repeat.max = UINT32_MAX;
      const bool is_range = peek() == '{';
      if (take("?")) {
        repeat.max = 1;
      } else if (take("+")) {
        repeat.min = 1;
      } else if (is_range) {
        TRY(parse_range(&repeat.min, &repeat.max));
      } else if (!take("*")) {
        return atom;
      }
      if (count == kQuantifiersMax) return error("too many repetitions of one thing");
      if (take("?")) {
        repeat.lazy = true;
      } else if (!is_range && take("+")) {  // after {n,m} a '+' is a second repetition
        repeat.possessive = true;
        if (atom.kind != RegexTree::Kind::kSet) {
          return error("possessive repetition is only supported for one character");
        }
      }
      if (repeat.max == UINT32_MAX && atom.can_be_empty()) {
        return error("an endless repetition of something that can be empty");
      }
      repeat.children.push_back(std::move(atom));
      atom = std::move(repeat);
    }
  }

  Status parse_range(uint32_t* min, uint32_t* max) {
    take("{");
    *min = 0;
    const bool has_min = peek() != ',';
    if (has_min) {
      TRY_ASSIGN(*min, parse_number());
    }
    *max = *min;
    if (take(",")) {
      *max = UINT32_MAX;
      if (!has_min || peek() != '}') {
        TRY_ASSIGN(*max, parse_number());
      }
    }
    if (!take("}")) return error("a '{' without '}'");
    if (*max == 0 || *min > *max) return error("an empty range of repetitions");
    return ok_status();
  }

  Result<uint32_t> parse_number() {
    constexpr uint32_t kRepetitionsMax = 1000;
    uint32_t number = 0;
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + static_cast<uint32_t>(take_char() - '0');
      if (number > kRepetitionsMax) return error("too many repetitions");
    }
    if (at_ == start) return error("a number is missing");
    return number;
  }

  // After the '['.
  Result<CharSet> parse_class(int depth) {
    if (depth > Regex::kDepthMax) return error("classes are nested too deeply");
    const bool negated = take("^");
    CharSet set;
    std::optional<CharSet> others;  // what stands before the last &&
    for (bool first = true; first || peek() != ']'; first = false) {
      if (at_end()) return error("a '[' without ']'");
      if (take("&&")) {
        others = others.has_value() ? others->intersection(set) : std::move(set);
        set = CharSet();
        continue;
      }
      TRY(parse_class_item(depth, &set));
    }
    take("]");
    if (others.has_value()) set = others->intersection(set);
    return negated ? set.complement() : set;
  }

  Status parse_class_item(int depth, CharSet* set) {
    if (take("[:")) {
      const size_t close = regex_.find(":]", at_);
      if (close == std::string_view::npos) return error("a '[:' without ':]'");
      TRY_ASSIGN(const CharSet named, posix_class(regex_.substr(at_, close - at_)));
      at_ = close + 2;
      set->add(named);
      return ok_status();
    }
    if (take("[")) {
      TRY_ASSIGN(const CharSet inner, parse_class(depth + 1));
      set->add(inner);
      return ok_status();
    }
    TRY_ASSIGN(const Escape low, parse_class_char());
    const bool is_range =
        low.is_char && peek() == '-' && at_ + 1 < regex_.size() && regex_[at_ + 1] != ']';
    if (!is_range) {
      set->add(low.set);
      return ok_status();
    }
    take("-");
    TRY_ASSIGN(const Escape high, parse_class_char());
    if (!high.is_char || high.c < low.c) return error("a range that ends before it begins");
    set->add(low.c, high.c);
    return ok_status();
  }

  struct Escape {
    CharSet set;
    bool is_char = false;
    char32_t c = 0;
  };
  static Escape one_char(char32_t c) { return {CharSet::of(c), true, c}; }
  static Escape a_set(CharSet set, bool negated) {
    return {negated ? set.complement() : std::move(set), false, 0};
  }

  Result<Escape> parse_class_char() {
    if (at_end()) return error("a '[' without ']'");
    if (peek() == '\\') return parse_escape();
    return one_char(take_char());
  }

  Result<CharSet> posix_class(std::string_view name) const {
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    CharSet set;
    const auto add_properties = [&set](std::initializer_list<const char*> names) {
      for (const char* property : names) set.add(*CharSet::property(property));
    };
    if (name == "digit") {
      add_properties({"Nd"});
    } else if (name == "space") {
      set = CharSet::white_space();
    } else if (name == "punct") {
      add_properties({"P", "S"});
    } else if (name == "upper") {
      add_properties({"Lu"});
      set.add(0x2160, 0x216F);  // and the circled and squared capitals
      set.add(0x24B6, 0x24CF);
      set.add(0x1F130, 0x1F149);
      set.add(0x1F150, 0x1F169);
      set.add(0x1F170, 0x1F189);
    } else if (name == "word") {
      set = CharSet::word();
    } else {
      return error("this class is not supported");
    }
    return negated ? set.complement() : set;
  }

  Result<Escape> parse_escape() {
    take("\\");
    if (at_end()) return error("it ends in a backslash");
    const char32_t c = take_char();
    const bool is_upper = c >= 'A' && c <= 'Z';
    switch (c | 0x20) {
      case 's':
        return a_set(CharSet::white_space(), is_upper);
      case 'd':
        return a_set(CharSet::digit(), is_upper);
      case 'w':
        return a_set(CharSet::word(), is_upper);
      case 'p':
        return parse_property(is_upper);
      default:
        break;
    }
    switch (c) {
      case 'r':
        return one_char('\r');
      case 'n':
        return one_char('\n');
      case 't':
        return one_char('\t');
      case 'f':
        return one_char('\f');
      case 'v':
        return one_char('\v');
      case 'u':
        return parse_hex(4, 4);
      case 'x': {
        if (!take("{")) return parse_hex(1, 2);
        TRY_ASSIGN(Escape value, parse_hex(1, 6));
        if (!take("}")) return error("a '{' without '}'");
        return value;
      }
      default:
        break;
    }
    const bool is_word = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (is_word) return error("this escape is not supported");
    return one_char(c);
  }

  Result<Escape> parse_property(bool negated) {
    if (!take("{")) return error("\\p needs braces");
    if (take("^")) negated = !negated;
    const size_t close = regex_.find('}', at_);
    if (close == std::string_view::npos) return error("a '{' without '}'");
    std::optional<CharSet> set = CharSet::property(regex_.substr(at_, close - at_));
    if (!set.has_value()) return error("this property is not supported");
    at_ = close + 1;
    return a_set(std::move(*set), negated);
  }

  Result<Escape> parse_hex(size_t digits_min, size_t digits_max) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < digits_max; ++digits) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        break;
      }
      ++at_;
    }
    const bool is_scalar = value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
    if (digits < digits_min || !is_scalar) return error("not a character's number");
    return one_char(value);
  }

  std::string_view regex_;
  std::vector<CharSet>* sets_;
  size_t at_ = 0;
  bool ignore_case_ = false;
};

Result<RegexTree> parse_regex(std::string_view regex, std::vector<CharSet>* sets) {
  return RegexParser(regex, sets).parse();
}

}  // namespace kvikk
