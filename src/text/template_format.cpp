// Text from patterns: "%s" % x and "{}".format(x).

#include <algorithm>
#include <cmath>

#include "text/template_methods.h"
#include "text/template_spec.h"

namespace kvikk::jinja {
namespace {

// "%..." % arguments.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& vm, const Value& pattern, const Value& arguments)
      : vm_(vm),
        pattern_(text_of(pattern)),
        markup_(is_markup(pattern)),
        arguments_(arguments),
        out_(vm.budget()) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const size_t percent = pattern_.find('%', at_);
      out_.append(pattern_.substr(at_, percent == pattern_.npos ? percent : percent - at_));
      if (percent == pattern_.npos) break;
      at_ = percent + 1;
      directive();
    }
    const bool left_over = arguments_.is(Kind::kTuple) ? next_ < arguments_.as<List>().items.size()
                                                       : next_ == 0 && !is_mapping();
    if (left_over) fail("not all arguments converted during string formatting");
    return out_.take();
  }

 private:
  // What may stay unused: anything with items, as far as it is neither tuple nor string.
  bool is_mapping() const {
    return arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) ||
           arguments_.is(Kind::kRange) || arguments_.is(Kind::kUndefined);
  }

  char peek() const {
    if (at_ >= pattern_.size()) fail("incomplete format");
    return pattern_[at_];
  }

  const Value& argument() {
    if (!arguments_.is(Kind::kTuple)) {
      if (next_++ != 0) fail("not enough arguments for format string");
      return arguments_;
    }
    const std::vector<Value>& items = arguments_.as<List>().items;
    if (next_ >= items.size()) fail("not enough arguments for format string");
    return items[next_++];
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value& value = argument();
      if (!as_index(value)) fail("* wants int");
      return *as_index(value);
    }
    int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > INT32_MAX) fail("width too big");
    }
    return value;
  }

  // "%(name)s": the argument is an item of a mapping.
  void key() {
    int depth = 1;
    const size_t start = ++at_;
    for (; depth > 0; ++at_) {
      if (peek() == '(') ++depth;
      if (peek() == ')') --depth;
    }
    if (!arguments_.is(Kind::kDict)) fail("format requires a mapping");
    const std::string_view name = pattern_.substr(start, at_ - 1 - start);
    const Value* found = arguments_.as<Dict>().find(name);
    if (found == nullptr) fail("no key '", name, "' for a format string");
    named_ = *found;
  }

  void directive() {
    Spec spec;
    named_ = Value();
    if (peek() == '(') key();
    bool zero = false;
    for (;; ++at_) {
      const char flag = peek();
      if (flag == '-') {
        spec.align = '<';
      } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
        spec.sign = flag;
      } else if (flag == '#') {
        spec.alternate = true;
      } else if (flag == '0') {
        zero = true;
      } else if (flag != ' ') {
        break;
      }
    }
    spec.width = number();
    if (spec.width < 0) spec.align = '<';
    spec.width = std::abs(spec.width);
    if (peek() == '.') {
      ++at_;
      spec.precision = checked_precision(std::max<int64_t>(number(), 0));
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = pattern_[at_++];
    if (spec.type == '%') return out_.append('%');
    const Value value = named_.is_missing() ? argument() : named_;
    if (zero && spec.align == '\0' &&
        std::string_view("srac").find(spec.type) == std::string_view::npos) {
      spec.fill = "0";
      spec.align = '=';
    }
    convert(spec, value);
  }

  std::string shown(const std::string& text) {
    if (!markup_) return text;
    Text escaped(vm_.budget());
    append_escaped(escaped, text);
    return escaped.take();
  }

  void convert(const Spec& spec, const Value& value) {
    switch (spec.type) {
      case 's': {
        const std::string text =
            markup_ ? std::string(text_of(escape(vm_, value))) : str(vm_, value);
        return append_padded(out_, "", first_characters(text, spec.precision), spec, '>');
      }
      case 'r':
      case 'a':
        if (spec.type == 'a') fail_unsupported("the conversion %a");
        return append_padded(out_, "", first_characters(shown(repr(vm_, value)), spec.precision),
                             spec, '>');
      case 'c':
        return character(spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is(Kind::kUndefined)) fail_undefined(vm_, value);
        if (!value.is_number()) fail("must be real number, not ", type_name(value));
        return format_real(out_, value.as_real(), spec);
      default:
        fail("unsupported format character '", spec.type, "'");
    }
  }

  void character(const Spec& spec, const Value& value) {
    if (value.is_string() && value.as<String>().length == 1) {
      return append_padded(out_, "", text_of(value), spec, '>');
    }
    if (!value.is_integral()) fail("%c requires int or char");
    Spec as_int = spec;
    as_int.precision = -1;
    if (as_int.align == '\0') as_int.align = '>';
    format_int(out_, value.as_int(), as_int);
  }

  void integer(Spec spec, const Value& value) {
    if (value.is(Kind::kUndefined)) fail_undefined(vm_, value);
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    Int whole = 0;
    if (value.is_integral()) {
      whole = value.as_int();
    } else if (decimal && value.is(Kind::kFloat)) {
      if (!(std::fabs(value.as_real()) < 1.7e38)) fail("cannot convert float to integer");
      whole = static_cast<Int>(value.as_real());
    } else {
      fail("%", spec.type, " format: a real number is required, not ", type_name(value));
    }
    const int base = spec.type == 'o' ? 8 : decimal ? 10 : 16;
    std::string digits = digits_in_base(whole, base, spec.type == 'X');
    if (spec.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    std::string sign(sign_of(whole < 0, spec));
    if (spec.alternate && !decimal) sign += concat("0", spec.type);
    append_padded(out_, sign, digits, spec, '>');
  }

  Interpreter& vm_;
  std::string_view pattern_;
  bool markup_;
  const Value arguments_;
  Text out_;
  size_t at_ = 0;
  size_t next_ = 0;
  Value named_;
};

// "{...}".format(...).
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& vm, const Value& pattern, const std::vector<Value>& args,
                 const Value& names)
      : vm_(vm), markup_(is_markup(pattern)), args_(args), names_(names) {}

  // `nesting`: a specification may hold fields, whose specifications may not.
  std::string run(std::string_view pattern, int nesting) {
    Text out(vm_.budget());
    for (size_t i = 0; i < pattern.size(); ++i) {
      const char c = pattern[i];
      const bool doubled = i + 1 < pattern.size() && pattern[i + 1] == c;
      if (c != '{' && c != '}') {
        out.append(c);
      } else if (doubled) {
        out.append(c);
        ++i;
      } else if (c == '}') {
        fail("single '}' encountered in format string");
      } else {
        const size_t end = field_end(pattern, i);
        if (nesting == 2) fail("max string recursion exceeded");
        out.append(field(pattern.substr(i + 1, end - i - 1), nesting));
        i = end;
      }
    }
    return out.take();
  }

 private:
  static size_t field_end(std::string_view pattern, size_t start) {
    int depth = 0;
    for (size_t i = start; i < pattern.size(); ++i) {
      if (pattern[i] == '{') ++depth;
      if (pattern[i] == '}' && --depth == 0) return i;
    }
    fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int nesting) {
    size_t name_end = 0;  // a bracket may hold any character but its partner
    for (bool bracket = false; name_end < text.size(); ++name_end) {
      const char c = text[name_end];
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      if (!bracket && (c == ':' || c == '!')) break;
    }
    Value value = look_up(text.substr(0, name_end));
    text.remove_prefix(name_end);
    if (!text.empty() && text[0] == '!') {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':'))
        fail("expected ':' after conversion");
      if (text[1] == 's') {
        value = make_string(vm_, str(vm_, value));
      } else if (text[1] == 'r') {
        value = make_string(vm_, repr(vm_, value));
      } else {
        fail("unknown conversion specifier");
      }
      text.remove_prefix(2);
    }
    const std::string spec = text.empty() ? "" : run(text.substr(1), nesting + 1);
    if (!markup_) return format_value(vm_, value, spec);
    if (is_markup(value)) {
      if (!spec.empty()) fail("unsupported format specification for Markup");
      return std::string(text_of(value));
    }
    Text escaped(vm_.budget());
    append_escaped(escaped, format_value(vm_, value, spec));
    return escaped.take();
  }

  Value look_up(std::string_view path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    if (first_end == 0 && !path.empty()) fail("a field of a format string lacks its name");
    Value value = first(path.substr(0, first_end), first_end == path.size());
    path.remove_prefix(first_end);
    while (!path.empty()) {
      vm_.budget().step();
      if (path[0] == '.') {
        const size_t end = std::min(path.find_first_of(".[", 1), path.size());
        if (end == 1) fail("empty attribute in format string");
        value = get_attribute(vm_, value, path.substr(1, end - 1));
        path.remove_prefix(end);
        continue;
      }
      const size_t end = path.find(']');
      if (path[0] != '[' || end == path.npos) fail("missing ']' in format string");
      const std::string_view name = path.substr(1, end - 1);
      if (name.empty()) fail("empty attribute in format string");
      value = get_item(vm_, value, name_or_number(name));
      path.remove_prefix(end + 1);
    }
    return value;
  }

  Value name_or_number(std::string_view name) {
    const bool digits = name.find_first_not_of("0123456789") == name.npos;
    if (!digits) return make_string(vm_, std::string(name));
    const auto number = parse_int(name, 10);
    return number ? *number : Value::integer(-1);
  }

  // `numbers`: whether this field counts for the rule that either all or none are numbered.
  Value first(std::string_view name, bool numbers) {
    const bool digits = name.find_first_not_of("0123456789") == name.npos;
    if (!digits) {
      const Value* found = names_.is(Kind::kDict) ? names_.as<Dict>().find(name) : nullptr;
      if (found == nullptr) fail("no argument '", name, "' for a format string");
      return *found;
    }
    if (numbers) {
      if (name.empty() ? manual_ : automatic_) {
        fail("cannot switch between automatic and manual field numbering");
      }
      (name.empty() ? automatic_ : manual_) = true;
    }
    constexpr size_t kIndexDigitsMax = 9;
    const size_t index = name.empty()                    ? next_++
                         : name.size() > kIndexDigitsMax ? args_.size()
                                                         : std::stoul(std::string(name));
    if (index >= args_.size()) fail("replacement index out of range for a format string");
    return args_[index];
  }

  Interpreter& vm_;
  bool markup_;
  const std::vector<Value>& args_;
  Value names_;
  size_t next_ = 0;
  bool automatic_ = false, manual_ = false;
};

}  // namespace

Value format_percent(Interpreter& vm, const Value& pattern, const Value& arguments) {
  return make_string(vm, PercentFormatter(vm, pattern, arguments).run(), is_markup(pattern));
}

Value string_method_format(Interpreter& vm, Call& call) {
  DictBuilder names(vm);
  for (const auto& [name, value] : call.keywords) names.set(make_string(vm, name), value);
  BraceFormatter formatter(vm, call.self, call.args, names.finish());
  return make_string(vm, formatter.run(text_of(call.self), 0), is_markup(call.self));
}

Value string_method_format_map(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  const std::vector<Value> none;
  BraceFormatter formatter(vm, call.self, none, call.args[0]);
  return make_string(vm, formatter.run(text_of(call.self), 0), is_markup(call.self));
}

}  // namespace kvikk::jinja
