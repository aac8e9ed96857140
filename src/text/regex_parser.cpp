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
#include "text/regex_cursor.h"
#include "text/regex_tree.h"

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

class RegexParser : private RegexCursor {
 public:
  RegexParser(std::string_view regex, std::vector<CharSet>* sets)
      : RegexCursor(regex), sets_(sets) {}

  Result<RegexTree> parse() {
    TRY(check_text(Regex::kRegexBytesMax));
    TRY_ASSIGN(RegexTree tree, parse_choice(0));
    if (!at_end()) return error("unbalanced ')'");
    return tree;
  }

 private:
  using Kind = Regex::Kind;

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
      TRY(take_until(">", "a group's name without '>'").status());
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
      const bool is_range = take("{");
      if (is_range) {
        TRY_ASSIGN(const Range range, parse_range());
        repeat.min = range.min;
        repeat.max = range.max;
      } else if (take("?")) {
        repeat.max = 1;
      } else if (take("+")) {
        repeat.min = 1;
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
      TRY_ASSIGN(const std::string_view name, take_until(":]", "a '[:' without ':]'"));
      TRY_ASSIGN(const CharSet named, posix_class(name));
      set->add(named);
      return ok_status();
    }
    if (take("[")) {
      TRY_ASSIGN(const CharSet inner, parse_class(depth + 1));
      set->add(inner);
      return ok_status();
    }
    TRY_ASSIGN(const Escape low, parse_class_char());
    if (!low.is_char || !at_range_dash()) {
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
      case 'x':
        return parse_code_point(c == 'u');
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
    TRY_ASSIGN(const std::string_view name, take_until("}", "a '{' without '}'"));
    std::optional<CharSet> set = CharSet::property(name);
    if (!set.has_value()) return error("this property is not supported");
    return a_set(std::move(*set), negated);
  }

  // After \u or \x: FFFF, FF or {10FFFF}.
  Result<Escape> parse_code_point(bool is_four_digits) {
    const bool is_braced = !is_four_digits && take("{");
    TRY_ASSIGN(const char32_t c,
               is_four_digits ? parse_hex(4, 4) : parse_hex(1, is_braced ? 6 : 2));
    if (is_braced && !take("}")) return error("a '{' without '}'");
    return one_char(c);
  }

  std::vector<CharSet>* sets_;
  bool ignore_case_ = false;
};

Result<RegexTree> parse_regex(std::string_view regex, std::vector<CharSet>* sets) {
  return RegexParser(regex, sets).parse();
}

}  // namespace kvikk
