// JSON in both directions: the caller's variables as values, and the filter tojson, which prints as
// Python's json.dumps does and keeps the order of keys.

#include <cmath>
#include <nlohmann/json.hpp>

#include "text/template_builtins.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value import_value(Interpreter& vm, const Json& json, int depth) {
  const int limit = budget_of(vm).limits().value_depth_max;
  if (depth > limit) {
    throw_error(
        StatusCode::kExhausted, 0,
        concat("a template variable nests deeper than value_depth_max = ", std::to_string(limit)));
  }
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return import_string(vm, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(import_value(vm, item, depth + 1));
      return import_list(vm, std::move(items));
    }
    case Json::value_t::object: {
      std::vector<Dict::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        entries.push_back({import_string(vm, key), import_value(vm, item, depth + 1)});
      }
      return Value(Kind::kDict, new Dict(&budget_of(vm), std::move(entries)));
    }
    default:
      fail("a variable of a kind that JSON does not have");
  }
}

// What tojson's arguments say about the layout.
struct Layout {
  bool ascii_only = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};

class JsonWriter {
 public:
  JsonWriter(Interpreter& vm, const Layout& layout) : vm_(vm), layout_(layout), out_(vm.budget()) {}

  void write(const Value& value, int depth) {
    const int limit = vm_.budget().limits().value_depth_max;
    if (depth > limit) fail_limit("value_depth_max", static_cast<uint64_t>(limit));
    vm_.budget().step();
    switch (value.kind()) {
      case Kind::kNone:
        out_.append("null");
        return;
      case Kind::kBool:
        out_.append(value.as_int() != 0 ? "true" : "false");
        return;
      case Kind::kInt:
        out_.append(int_text(value.as_int()));
        return;
      case Kind::kFloat:
        out_.append(real(value.as_real()));
        return;
      case Kind::kString:
        string(text_of(value));
        return;
      case Kind::kList:
      case Kind::kTuple:
        list(value.as<List>().items, depth);
        return;
      case Kind::kDict:
        dict(value.as<Dict>().entries, depth);
        return;
      default:
        fail("Object of type ", type_name(value), " is not JSON serializable");
    }
  }

  std::string take() { return out_.take(); }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void newline(int depth) {
    if (!layout_.multiline) return;
    out_.append('\n');
    out_.repeat(layout_.indent, static_cast<uint64_t>(depth));
  }

  void list(const std::vector<Value>& items, int depth) {
    out_.append('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_.append(layout_.item_separator);
      newline(depth + 1);
      write(items[i], depth + 1);
    }
    if (!items.empty()) newline(depth);
    out_.append(']');
  }

  void dict(const std::vector<Dict::Entry>& entries, int depth) {
    std::vector<Value> order, keys;
    if (layout_.sort_keys) {
      for (size_t i = 0; i < entries.size(); ++i) {
        order.push_back(Value::integer(static_cast<Int>(i)));
        keys.push_back(entries[i].key);
      }
      sort_by_keys(vm_, order, keys, false);
    }
    out_.append('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      const size_t at = layout_.sort_keys ? static_cast<size_t>(order[i].as_int()) : i;
      if (i != 0) out_.append(layout_.item_separator);
      newline(depth + 1);
      key(entries[at].key);
      out_.append(layout_.key_separator);
      write(entries[at].value, depth + 1);
    }
    if (!entries.empty()) newline(depth);
    out_.append('}');
  }

  void key(const Value& value) {
    switch (value.kind()) {
      case Kind::kString:
        string(text_of(value));
        return;
      case Kind::kNone:
        string("null");
        return;
      case Kind::kBool:
        string(value.as_int() != 0 ? "true" : "false");
        return;
      case Kind::kInt:
        string(int_text(value.as_int()));
        return;
      case Kind::kFloat:
        string(real(value.as_real()));
        return;
      default:
        fail("keys must be str, int, float, bool or None, not ", type_name(value));
    }
  }

  void string(std::string_view text) {
    out_.append('"');
    for (size_t i = 0; i < text.size();) {
      // Plain text goes in one piece.
      size_t end = i;
      while (end < text.size() && is_plain(text[end])) ++end;
      out_.append(text.substr(i, end - i));
      if (end == text.size()) break;
      const CodePoint c = code_point_at(text, end);
      escape(c.value);
      i = end + c.bytes;
    }
    out_.append('"');
  }

  bool is_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && c != '"' && c != '\\' && (byte < 0x7F || !layout_.ascii_only);
  }

  void escape(uint32_t c) {
    constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    constexpr std::string_view kTo = "\"\\nrtfb";
    const size_t known = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
    if (known != kFrom.npos) {
      out_.append('\\');
      out_.append(kTo[known]);
    } else if (c >= 0x10000) {
      unit(0xD800 + ((c - 0x10000) >> 10));
      unit(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      unit(c);
    }
  }

  void unit(uint32_t value) {
    out_.append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) {
      out_.append("0123456789abcdef"[value >> shift & 15]);
    }
  }

  Interpreter& vm_;
  const Layout& layout_;
  Text out_;
};

}  // namespace

Value import_string(Interpreter& vm, std::string text) {
  return Value(Kind::kString, new String(&budget_of(vm), std::move(text), false));
}

Value import_list(Interpreter& vm, std::vector<Value> items) {
  return Value(Kind::kList, new List(&budget_of(vm), std::move(items)));
}

Value import_variables(Interpreter& vm, const Json& variables) {
  if (!variables.is_object()) fail("the variables of a template must be an object");
  std::vector<Dict::Entry> entries;
  const auto add_default = [&](const char* name, Value value) {
    if (!variables.contains(name)) {
      entries.push_back({import_string(vm, name), std::move(value)});
    }
  };
  for (const auto& [key, item] : variables.items()) {
    entries.push_back({import_string(vm, key), import_value(vm, item, 1)});
  }
  add_default("tools", Value::none());
  add_default("documents", Value::none());
  add_default("add_generation_prompt", Value::boolean(false));
  return Value(Kind::kDict, new Dict(&budget_of(vm), std::move(entries)));
}

// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
Value filter_tojson(Interpreter& vm, Call& call) {
  const std::vector<Value> args =
      bind(call, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  const auto flag = [&](const Value& value) { return !value.is_missing() && truthy(vm, value); };
  Layout layout;
  layout.ascii_only = flag(args[1]);
  layout.sort_keys = flag(args[4]);
  if (!args[2].is_missing() && !args[2].is_none()) {
    layout.multiline = true;
    layout.item_separator = ",";
    if (args[2].is_string()) {
      layout.indent = std::string(text_of(args[2]));
    } else {
      constexpr int64_t kIndentMax = 1024;
      const int64_t width = index_or_fail(args[2]);
      if (width > kIndentMax) fail("an indent beyond ", std::to_string(kIndentMax));
      layout.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  std::vector<Value> separators;  // alive as long as the layout
  if (!args[3].is_missing() && !args[3].is_none()) {
    separators = to_vector(vm, args[3]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("separators must be two strings");
    }
    layout.item_separator = text_of(separators[0]);
    layout.key_separator = text_of(separators[1]);
  }
  JsonWriter writer(vm, layout);
  writer.write(args[0], 0);
  return make_string(vm, writer.take());
}

}  // namespace kvikk::jinja
