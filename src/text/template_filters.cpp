// Filters over text and numbers, and the list of all filters.

#include <algorithm>
#include <cmath>

#include "text/template_builtins.h"
#include "text/template_methods.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

bool flag(Interpreter& vm, const Value& value) { return !value.is_missing() && truthy(vm, value); }

// A string method, applied to anything that prints.
Value apply(Interpreter& vm, const char* method, const Value& value, std::vector<Value> args) {
  Call call{method};
  call.self = soft_str(vm, value);
  call.args = std::move(args);
  return find_string_method(method)->builtin(vm, call);
}

Value filter_upper(Interpreter& vm, Call& call) {
  return apply(vm, "upper", bind(call, {"s"}, 1)[0], {});
}

Value filter_lower(Interpreter& vm, Call& call) {
  return apply(vm, "lower", bind(call, {"s"}, 1)[0], {});
}

Value filter_capitalize(Interpreter& vm, Call& call) {
  return apply(vm, "capitalize", bind(call, {"s"}, 1)[0], {});
}

Value filter_trim(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "chars"}, 1);
  return apply(vm, "strip", args[0], {args[1].is_missing() ? Value::none() : args[1]});
}

Value filter_center(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "width"}, 1);
  return apply(vm, "center", args[0], {args[1].is_missing() ? Value::integer(80) : args[1]});
}

Value filter_replace(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"s", "old", "new", "count"}, 3);
  const auto plain = [&](const Value& value) { return make_string(vm, str(vm, value)); };
  const bool all = args[3].is_missing() || args[3].is_none();
  return apply(vm, "replace", plain(args[0]),
               {plain(args[1]), plain(args[2]), all ? Value::integer(-1) : args[3]});
}

bool starts_title_word(uint32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
}

Value filter_title(Interpreter& vm, Call& call) {
  const Value value = soft_str(vm, bind(call, {"s"}, 1)[0]);
  const std::string_view text = text_of(value);
  vm.budget().step_characters(text.size());
  Text out(vm.budget());
  for (size_t i = 0; i < text.size();) {
    const CodePoint first = code_point_at(text, i);
    const bool gap = starts_title_word(first.value);
    size_t end = i + first.bytes;
    while (end < text.size()) {
      const CodePoint c = code_point_at(text, end);
      if (starts_title_word(c.value) != gap) break;
      end += c.bytes;
    }
    out.append(to_upper(text.substr(i, first.bytes)));
    out.append(to_lower(text.substr(i + first.bytes, end - i - first.bytes)));
    i = end;
  }
  return make_string(vm, out.take());
}

Value filter_default(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "default_value", "boolean"}, 1);
  const bool replace = args[0].is(Kind::kUndefined) || (flag(vm, args[2]) && !truthy(vm, args[0]));
  if (!replace) return args[0];
  return args[1].is_missing() ? make_string(vm, "") : args[1];
}

Value filter_abs(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  const Value& value = call.args[0];
  if (!value.is_number()) fail("bad operand type for abs(): '", type_name(value), "'");
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_real()));
  return value.as_int() < 0 ? negate(vm, value) : Value::integer(value.as_int());
}

Value filter_length(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  const auto length = length_of(vm, call.args[0]);
  if (!length) {
    fail("object of type '", type_name(call.args[0]), "' has no length");
  }
  return Value::integer(static_cast<Int>(*length));
}

std::optional<Value> whole_part(double real) {
  if (!std::isfinite(real)) return std::nullopt;
  if (std::fabs(real) >= 1.7e38) fail_unsupported("an integer beyond 128 bits");
  return Value::integer(static_cast<Int>(real));
}

Value filter_int(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "default", "base"}, 1);
  const Value& value = args[0];
  std::optional<Value> result;
  if (value.is(Kind::kUndefined)) fail_undefined(vm, value);
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) {
    if (std::isinf(value.as_real())) fail("cannot convert float infinity to integer");
    result = whole_part(value.as_real());
  } else if (value.is_string()) {
    vm.budget().step_characters(text_of(value).size());
    const int64_t base = args[2].is_missing() ? 10 : index_or_fail(args[2]);
    constexpr int kBadBase = 1;
    result = parse_int(text_of(value), base >= 0 && base <= 36 ? static_cast<int>(base) : kBadBase);
    if (!result) {
      if (const auto real = parse_float(text_of(value))) result = whole_part(*real);
    }
  }
  if (result) return *result;
  return args[1].is_missing() ? Value::integer(0) : args[1];
}

Value filter_float(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "default"}, 1);
  const Value& value = args[0];
  if (value.is(Kind::kUndefined)) fail_undefined(vm, value);
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is_string()) {
    vm.budget().step_characters(text_of(value).size());
    if (const auto real = parse_float(text_of(value))) return Value::real(*real);
  }
  return args[1].is_missing() ? Value::real(0) : args[1];
}

Value filter_round(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "precision", "method"}, 1);
  const Value precision = args[1].is_missing() ? Value::integer(0) : args[1];
  const std::string method = args[2].is_missing() ? "common" : str(vm, args[2]);
  if (method == "common") return round_number(vm, args[0], index_or_fail(precision));
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const Value unit = calculate(vm, Operator::kPow, Value::integer(10), precision);
  Value scaled = calculate(vm, Operator::kMul, args[0], unit);
  if (!scaled.is_number()) fail("must be real number, not ", type_name(scaled));
  if (scaled.is(Kind::kFloat)) {
    const double real = scaled.as_real();
    const auto whole = whole_part(method == "ceil" ? std::ceil(real) : std::floor(real));
    if (!whole) fail("cannot convert float to integer");
    scaled = *whole;
  }
  return calculate(vm, Operator::kDiv, scaled, unit);
}

Value filter_string(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  return soft_str(vm, call.args[0]);
}

Value filter_safe(Interpreter& vm, Call& call) {
  return make_string(vm, str(vm, bind(call, {"value"}, 1)[0]), true);
}

Value filter_escape(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  return escape(vm, call.args[0]);
}

Value filter_forceescape(Interpreter& vm, Call& call) {
  return escape(vm, make_string(vm, str(vm, bind(call, {"value"}, 1)[0])));
}

Value filter_format(Interpreter& vm, Call& call) {
  if (call.args.empty()) fail("'format' lacks its text");
  if (call.args.size() > 1 && !call.keywords.empty()) {
    fail("'format' takes either positional or keyword arguments, not both");
  }
  const Value pattern = soft_str(vm, call.args[0]);
  if (call.keywords.empty()) {
    return format_percent(vm, pattern, make_tuple(vm, {call.args.begin() + 1, call.args.end()}));
  }
  DictBuilder names(vm);
  for (const auto& [name, value] : call.keywords) names.set(make_string(vm, name), value);
  return format_percent(vm, pattern, names.finish());
}

Value filter_indent(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"s", "width", "first", "blank"}, 1);
  if (args[0].is(Kind::kUndefined)) fail_undefined(vm, args[0]);
  if (!args[0].is_string()) fail("'indent' needs a str, not ", type_name(args[0]));
  Text indent(vm.budget());
  if (args[1].is_string()) {
    indent.append(text_of(args[1]));
  } else {
    const int64_t width = args[1].is_missing() ? 4 : index_or_fail(args[1]);
    indent.repeat(" ", static_cast<uint64_t>(std::max<int64_t>(width, 0)));
  }
  const std::string prefix = indent.take();
  const bool first = flag(vm, args[2]), blank = flag(vm, args[3]);
  // A newline at the end makes the last line count, empty or not.
  const std::string text = concat(text_of(args[0]), "\n");
  Text out(vm.budget());
  bool at_first = true;
  for (std::string_view line : split_lines(vm, text, false)) {
    if (!at_first) out.append('\n');
    if (at_first ? first : blank || !line.empty()) out.append(prefix);
    at_first = false;
    out.append(line);
  }
  return make_string(vm, out.take(), is_markup(args[0]));
}

Value filter_truncate(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"s", "length", "killwords", "end", "leeway"}, 1);
  constexpr Int kLeeway = 5;
  const Int length = args[1].is_missing() ? 255 : index_or_fail(args[1]);
  const bool standard = args[4].is_missing() || args[4].is_none();
  const Int leeway = standard ? kLeeway : index_or_fail(args[4]);
  const Value end = args[3].is_missing() ? make_string(vm, "...") : args[3];
  if (!end.is_string()) fail("'truncate' needs a str as its end");
  const auto end_length = static_cast<Int>(end.as<String>().length);
  if (length < end_length || leeway < 0) fail("'truncate' needs a length beyond that of its end");
  const auto size = length_of(vm, args[0]);
  if (!size) fail("object of type '", type_name(args[0]), "' has no length");
  if (static_cast<Int>(*size) <= length + leeway) return args[0];
  if (!args[0].is_string()) fail("'truncate' needs a str");
  Value head =
      get_slice(vm, args[0], Value::none(), Value::integer(length - end_length), Value::none());
  if (!flag(vm, args[2])) {
    const std::string_view text = text_of(head);
    head = make_string(vm, std::string(text.substr(0, text.rfind(' '))), is_markup(head));
  }
  return calculate(vm, Operator::kAdd, head, end);
}

Value filter_wordcount(Interpreter& vm, Call& call) {
  const Value value = soft_str(vm, bind(call, {"s"}, 1)[0]);
  const std::string_view text = text_of(value);
  vm.budget().step_characters(text.size());
  Int words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.bytes;
    const bool word = is_word(c.value);
    words += word && !inside;
    inside = word;
  }
  return Value::integer(words);
}

Value filter_filesizeformat(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "binary"}, 1);
  std::optional<double> bytes;
  if (args[0].is_number()) bytes = args[0].as_real();
  if (args[0].is_string()) bytes = parse_float(text_of(args[0]));
  if (!bytes) fail("'filesizeformat' needs a number");
  const bool binary = flag(vm, args[1]);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return make_string(vm, "1 Byte");
  if (*bytes < base) {
    const auto whole = whole_part(*bytes);
    if (!whole) fail("cannot convert float to integer");
    return make_string(vm, concat(int_text(whole->as_int()), " Bytes"));
  }
  constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; *bytes >= unit && i + 1 < kLetters.size(); ++i) unit *= base;
  std::string text = concat(format_value(vm, Value::real(base * *bytes / unit), ".1f"), " ");
  text += binary && i == 0 ? 'K' : kLetters[i];
  return make_string(vm, text + (binary ? "iB" : "B"));
}

void append_quoted(Interpreter& vm, Text& out, const Value& value, bool for_query) {
  const std::string text = str(vm, value);
  vm.budget().step_characters(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out.append(c);
    } else if (c == ' ' && for_query) {
      out.append('+');
    } else {
      out.append('%');
      out.append("0123456789ABCDEF"[byte >> 4]);
      out.append("0123456789ABCDEF"[byte & 15]);
    }
  }
}

Value filter_urlencode(Interpreter& vm, Call& call) {
  const Value value = bind(call, {"value"}, 1)[0];
  Text out(vm.budget());
  if (value.is_string() || !is_iterable(value)) {
    append_quoted(vm, out, value, false);
    return make_string(vm, out.take());
  }
  const Value pairs =
      value.is(Kind::kDict)
          ? Value(Kind::kDictView, new DictView(&vm.budget(), value, DictView::Part::kItems))
          : value;
  const Ref<Iterator> source = iterate(vm, pairs);
  bool first = true;
  for (Value pair; read(vm, *source, pair);) {
    const std::vector<Value> parts = to_vector(vm, pair);
    if (parts.size() != 2) fail("'urlencode' needs pairs");
    if (!std::exchange(first, false)) out.append('&');
    append_quoted(vm, out, parts[0], true);
    out.append('=');
    append_quoted(vm, out, parts[1], true);
  }
  return make_string(vm, out.take());
}

Value filter_xmlattr(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"d", "autospace"}, 1);
  if (!args[0].is(Kind::kDict)) fail("'xmlattr' needs a dict");
  Text out(vm.budget());
  for (const Dict::Entry& entry : args[0].as<Dict>().entries) {
    if (entry.value.is_none() || entry.value.is(Kind::kUndefined)) continue;
    if (!entry.key.is_string()) fail("'xmlattr' needs strings as keys");
    const std::string_view key = text_of(entry.key);
    if (key.find_first_of(" \t\n\r\f\v/>=") != key.npos)
      fail("invalid character in attribute name");
    if (out.size() != 0 || args[1].is_missing() || truthy(vm, args[1])) out.append(' ');
    out.append(text_of(escape(vm, entry.key)));
    out.append("=\"");
    out.append(text_of(escape(vm, entry.value)));
    out.append('"');
  }
  return make_string(vm, out.take());
}

Value filter_attr(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"obj", "name"}, 2);
  if (args[0].is(Kind::kUndefined)) fail_undefined(vm, args[0]);
  if (!args[1].is_string()) fail("attribute name must be string");
  const std::string_view name = text_of(args[1]);
  if (!find_attribute(vm, args[0], name).is_missing()) return get_attribute(vm, args[0], name);
  return make_undefined(
      vm, concat("'", type_name(args[0]), " object' has no attribute ", repr(vm, args[1])));
}

Value filter_not_supported(Interpreter&, Call& call) {
  fail_unsupported("the filter '", call.name, "' is not supported");
}

constexpr BuiltinEntry kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_filesizeformat},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"length", filter_length},
    {"lower", filter_lower},
    {"pprint", filter_not_supported},
    {"random", filter_not_supported},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"striptags", filter_not_supported},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"urlize", filter_not_supported},
    {"wordcount", filter_wordcount},
    {"wordwrap", filter_not_supported},
    {"xmlattr", filter_xmlattr},
};

}  // namespace

Builtin find_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const BuiltinEntry& entry) { return entry.name == name; });
  return found != std::end(kFilters) ? found->builtin : find_sequence_filter(name);
}

}  // namespace kvikk::jinja
