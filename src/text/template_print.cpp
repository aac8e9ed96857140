// str() and repr() of every kind of value, and the escaping of HTML.

#include <array>
#include <charconv>
#include <cmath>

#include "text/template_ast.h"
#include "text/template_ops.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

void append_hex(Text& out, uint32_t value, int digits) {
  for (int shift = digits * 4 - 4; shift >= 0; shift -= 4) {
    out.append("0123456789abcdef"[value >> shift & 15]);
  }
}

void append_items(Interpreter& vm, Text& out, const std::vector<Value>& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.append(", ");
    append_repr(vm, out, items[i], depth + 1);
  }
}

void append_entries(Interpreter& vm, Text& out, const std::vector<Dict::Entry>& entries,
                    int depth) {
  out.append('{');
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i != 0) out.append(", ");
    append_repr(vm, out, entries[i].key, depth + 1);
    out.append(": ");
    append_repr(vm, out, entries[i].value, depth + 1);
  }
  out.append('}');
}

void append_view(Interpreter& vm, Text& out, const DictView& view, int depth) {
  constexpr const char* kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
  out.append(kNames[static_cast<size_t>(view.part)]);
  bool first = true;
  for (const Dict::Entry& entry : view.dict.as<Dict>().entries) {
    if (!std::exchange(first, false)) out.append(", ");
    if (view.part == DictView::Part::kItems) out.append('(');
    if (view.part != DictView::Part::kValues) append_repr(vm, out, entry.key, depth + 1);
    if (view.part == DictView::Part::kItems) out.append(", ");
    if (view.part != DictView::Part::kKeys) append_repr(vm, out, entry.value, depth + 1);
    if (view.part == DictView::Part::kItems) out.append(')');
  }
  out.append("])");
}

void append_range(Text& out, const Range& range) {
  out.append(concat("range(", std::to_string(range.start), ", ", std::to_string(range.stop)));
  if (range.step != 1) out.append(concat(", ", std::to_string(range.step)));
  out.append(')');
}

// Objects of the runtime print as Python prints them, without the addresses.
void append_object(Interpreter& vm, Text& out, const Value& value, int depth) {
  switch (value.kind()) {
    case Kind::kNamespace:
      out.append("<Namespace ");
      append_entries(vm, out, value.as<Namespace>().attributes, depth);
      out.append('>');
      return;
    case Kind::kMacro: {
      const MacroBody& body = *value.as<Macro>().body;
      out.append(body.anonymous ? "<Macro anonymous>" : concat("<Macro '", body.name, "'>"));
      return;
    }
    case Kind::kLoop: {
      Loop& loop = value.as<Loop>();
      out.append(concat("<LoopContext ", std::to_string(loop.index0 + 1), "/",
                        std::to_string(loop.length(vm)), ">"));
      return;
    }
    case Kind::kFunction:
      out.append(concat("<function ", value.as<Function>().name, ">"));
      return;
    case Kind::kMethod:
      out.append(concat("<built-in method ", value.as<Method>().name, " of ",
                        type_name(value.as<Method>().self), " object>"));
      return;
    default:
      out.append(concat("<", type_name(value), " object>"));
      return;
  }
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = buffer.data() + buffer.size();
  // The shortest digits that read back as the same double, as "d.ddde+XX".
  const auto result = std::to_chars(buffer.data(), end, value, std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(result.ptr - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + 1 + (text[e + 1] == '+'), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed = std::to_chars(buffer.data(), end, value, std::chars_format::fixed);
  std::string plain(buffer.data(), fixed.ptr);
  if (plain.find('.') == plain.npos) plain += ".0";
  return plain;
}

void append_string_repr(Text& out, std::string_view text) {
  out.budget().step_characters(text.size());
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out.append(quote);
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const std::string_view raw = text.substr(i, c.bytes);
    i += c.bytes;
    if (c.value == static_cast<uint32_t>(quote) || c.value == '\\') {
      out.append('\\');
      out.append(raw);
    } else if (c.value == '\n') {
      out.append("\\n");
    } else if (c.value == '\r') {
      out.append("\\r");
    } else if (c.value == '\t') {
      out.append("\\t");
    } else if (is_printable(c.value)) {
      out.append(raw);
    } else {
      const int digits = c.value < 0x100 ? 2 : c.value < 0x10000 ? 4 : 8;
      out.append(digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U");
      append_hex(out, c.value, digits);
    }
  }
  out.append(quote);
}

void append_repr(Interpreter& vm, Text& out, const Value& value, int depth) {
  const int limit = budget_of(vm).limits().value_depth_max;
  if (depth > limit) fail_limit("value_depth_max", static_cast<uint64_t>(limit));
  budget_of(vm).step();
  switch (value.kind()) {
    case Kind::kMissing:
      out.append("missing");
      return;
    case Kind::kNone:
      out.append("None");
      return;
    case Kind::kBool:
      out.append(value.as_int() != 0 ? "True" : "False");
      return;
    case Kind::kInt:
      out.append(int_text(value.as_int()));
      return;
    case Kind::kFloat:
      out.append(float_repr(value.as_real()));
      return;
    case Kind::kUndefined:
      out.append("Undefined");
      return;
    case Kind::kString:
      if (is_markup(value)) out.append("Markup(");
      append_string_repr(out, text_of(value));
      if (is_markup(value)) out.append(')');
      return;
    case Kind::kList:
    case Kind::kTuple: {
      const std::vector<Value>& items = value.as<List>().items;
      out.append(value.is(Kind::kList) ? '[' : '(');
      append_items(vm, out, items, depth);
      if (value.is(Kind::kTuple) && items.size() == 1) out.append(',');
      out.append(value.is(Kind::kList) ? ']' : ')');
      return;
    }
    case Kind::kDict:
      append_entries(vm, out, value.as<Dict>().entries, depth);
      return;
    case Kind::kDictView:
      append_view(vm, out, value.as<DictView>(), depth);
      return;
    case Kind::kRange:
      append_range(out, value.as<Range>());
      return;
    default:
      append_object(vm, out, value, depth);
  }
}

void append_str(Interpreter& vm, Text& out, const Value& value) {
  if (value.is_string()) {
    out.append(text_of(value));
  } else if (!value.is(Kind::kUndefined)) {
    append_repr(vm, out, value);
  }
}

std::string str(Interpreter& vm, const Value& value) {
  Text text(budget_of(vm));
  append_str(vm, text, value);
  return text.take();
}

std::string repr(Interpreter& vm, const Value& value) {
  Text text(budget_of(vm));
  append_repr(vm, text, value);
  return text.take();
}

Value soft_str(Interpreter& vm, const Value& value) {
  return value.is_string() ? value : make_string(vm, str(vm, value));
}

void append_escaped(Text& out, std::string_view text) {
  out.budget().step_characters(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      case '"':
        out.append("&#34;");
        break;
      default:
        out.append(text[i]);
    }
  }
}

Value escape(Interpreter& vm, const Value& value) {
  if (is_markup(value)) return value;
  Text text(budget_of(vm));
  append_escaped(text, str(vm, value));
  return make_string(vm, text.take(), true);
}

Value make_string(Interpreter& vm, std::string text, bool markup) {
  budget_of(vm).check_string(text.size());
  budget_of(vm).step_bytes(text.size());
  return Value(Kind::kString, new String(&budget_of(vm), std::move(text), markup));
}

Value make_list(Interpreter& vm, std::vector<Value> items) {
  budget_of(vm).check_items(items.size());
  budget_of(vm).step_items(items.size());
  return Value(Kind::kList, new List(&budget_of(vm), std::move(items)));
}

Value make_tuple(Interpreter& vm, std::vector<Value> items, bool group) {
  budget_of(vm).check_items(items.size());
  budget_of(vm).step_items(items.size());
  return Value(Kind::kTuple, new List(&budget_of(vm), std::move(items), group));
}

Value make_undefined(Interpreter& vm, std::string hint) {
  return Value(Kind::kUndefined, new Undefined(&budget_of(vm), std::move(hint)));
}

Value make_undefined_name(Interpreter& vm, std::string_view name) {
  return make_undefined(vm, concat("'", name, "' is undefined"));
}

void push_item(Interpreter& vm, std::vector<Value>& items, Value item) {
  budget_of(vm).check_items(items.size() + 1);
  items.push_back(std::move(item));
}

}  // namespace kvikk::jinja
