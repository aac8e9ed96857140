// Attributes, items and slices.

#include <algorithm>

#include "text/template_methods.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

Value undefined_part(Interpreter& vm, const Value& object, const Value& name) {
  return Value(Kind::kUndefined, new Undefined(&budget_of(vm), "", object, name));
}

Value undefined_part(Interpreter& vm, const Value& object, std::string_view name) {
  return undefined_part(vm, object, make_string(vm, std::string(name)));
}

// Undefined too, but using it says why.
Value unsafe_part(Interpreter& vm, const Value& object, std::string_view name) {
  return make_undefined(
      vm, concat("access to attribute '", name, "' of '", type_name(object), "' object is unsafe"));
}

Value bind_method(Interpreter& vm, const MethodEntry& entry, const Value& object) {
  if (entry.builtin == nullptr) return unsafe_part(vm, object, entry.name);
  return Value(Kind::kMethod, new Method(&budget_of(vm), entry.name.data(), entry.builtin, object));
}

Value undefined_neighbour(Interpreter& vm, const char* which) {
  return make_undefined(vm, concat("there is no ", which, " item"));
}

Value loop_field(Interpreter& vm, Loop& loop, std::string_view name) {
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek(vm));
  if (name == "length") return Value::integer(loop.length(vm));
  if (name == "revindex") return Value::integer(loop.length(vm) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.length(vm) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 ? undefined_neighbour(vm, "previous") : loop.before;
  }
  if (name == "nextitem") {
    return loop.peek(vm) ? loop.after : undefined_neighbour(vm, "next");
  }
  return Value();
}

Value macro_field(Interpreter& vm, const MacroBody& body, std::string_view name) {
  if (name == "name") return body.anonymous ? Value::none() : make_string(vm, body.name);
  if (name == "caller") return Value::boolean(body.takes_caller);
  if (name == "catch_kwargs") return Value::boolean(body.takes_keywords);
  if (name == "catch_varargs") return Value::boolean(body.takes_varargs);
  if (name == "explicit_caller") return Value::boolean(body.explicit_caller);
  if (name != "arguments") return Value();
  std::vector<Value> names;
  for (const auto& parameter : body.parameters) names.push_back(make_string(vm, parameter.name));
  return make_tuple(vm, std::move(names));
}

Value number_field(const Value& number, std::string_view name) {
  if (name == "real") {
    return number.is(Kind::kFloat) ? number : Value::integer(number.as_int());
  }
  if (name == "imag") return number.is(Kind::kFloat) ? Value::real(0) : Value::integer(0);
  if (number.is(Kind::kFloat)) return Value();
  if (name == "numerator") return Value::integer(number.as_int());
  return name == "denominator" ? Value::integer(1) : Value();
}

Value range_field(const Range& range, std::string_view name) {
  if (name == "start") return Value::integer(range.start);
  if (name == "stop") return Value::integer(range.stop);
  return name == "step" ? Value::integer(range.step) : Value();
}

Value cycler_field(const Cycler& cycler, std::string_view name) {
  if (name == "items") return cycler.items;
  if (name == "current") return cycler.items.as<List>().items[cycler.position];
  return name == "pos" ? Value::integer(static_cast<Int>(cycler.position)) : Value();
}

Value find_field(Interpreter& vm, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number_field(object, name);
    case Kind::kTuple:
      if (!object.as<List>().group) return Value();
      if (name == "grouper") return object.as<List>().items[0];
      return name == "list" ? object.as<List>().items[1] : Value();
    case Kind::kRange:
      return range_field(object.as<Range>(), name);
    case Kind::kNamespace: {
      const Value* found = object.as<Namespace>().find(name);
      return found != nullptr ? *found : Value();
    }
    case Kind::kMacro:
      return macro_field(vm, *object.as<Macro>().body, name);
    case Kind::kLoop:
      return loop_field(vm, object.as<Loop>(), name);
    case Kind::kCycler:
      return cycler_field(object.as<Cycler>(), name);
    case Kind::kJoiner:
      if (name == "sep") return object.as<Joiner>().separator;
      return name == "used" ? Value::boolean(object.as<Joiner>().used) : Value();
    default:
      return Value();
  }
}

// Item number `key` of a sequence; missing where it has none.
Value sequence_item(Interpreter& vm, const Value& object, const Value& key) {
  const auto exact = as_index(key);
  if (!exact) return Value();
  const auto length = static_cast<int64_t>(*length_of(vm, object));
  const int64_t index = *exact < 0 ? *exact + length : *exact;
  if (index < 0 || index >= length) return Value();
  const auto at = static_cast<size_t>(index);
  if (object.is_string()) return string_at(vm, object, at);
  if (object.is(Kind::kRange)) return Value::integer(object.as<Range>().at(at));
  return object.as<List>().items[at];
}

Value find_item(Interpreter& vm, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kDict: {
      if (!try_hash(budget_of(vm), key)) return Value();
      const Value* found = object.as<Dict>().find(vm, key);
      return found != nullptr ? *found : Value();
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return sequence_item(vm, object, key);
    default:
      return Value();
  }
}

// The indexes that a slice selects: start, start + step, ... , `count` of them.
struct Selection {
  int64_t start, step;
  size_t count;
};

Selection select(int64_t length, const Value& from, const Value& to, const Value& by) {
  const auto bound = [](const Value& value) -> std::optional<int64_t> {
    if (value.is_none()) return std::nullopt;
    if (!value.is_integral()) fail("slice indices must be integers or None");
    const Int clamped =
        std::clamp<Int>(value.as_int(), -(static_cast<Int>(1) << 62), static_cast<Int>(1) << 62);
    return static_cast<int64_t>(clamped);
  };
  const int64_t step = bound(by).value_or(1);
  if (step == 0) fail("slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto place = [&](std::optional<int64_t> index, int64_t otherwise) {
    if (!index) return otherwise;
    return std::clamp(*index < 0 ? *index + length : *index, low, high);
  };
  const int64_t start = place(bound(from), step > 0 ? low : high);
  const int64_t stop = place(bound(to), step > 0 ? high : low);
  const int64_t span = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  return {start, step, span <= 0 ? 0 : static_cast<size_t>((span - 1) / stride + 1)};
}

Value slice_string(Interpreter& vm, const Value& object, const Selection& part) {
  const String& string = object.as<String>();
  const std::string_view text = string.text;
  Text out(budget_of(vm));
  if (part.step == 1) {
    const auto start = static_cast<size_t>(part.start);
    if (string.single_bytes()) {
      out.append(text.substr(start, part.count));
    } else {
      budget_of(vm).step_characters(text.size());
      const size_t from = byte_offset(text, start);
      out.append(text.substr(from, byte_offset(text.substr(from), part.count)));
    }
    return make_string(vm, out.take(), string.markup);
  }
  budget_of(vm).step_characters(text.size());
  std::vector<size_t> offsets;  // where each character starts
  if (!string.single_bytes()) {
    for (size_t at = 0; at < text.size(); at += code_point_at(text, at).bytes) {
      offsets.push_back(at);
    }
  }
  for (size_t i = 0; i < part.count; ++i) {
    const auto index = static_cast<size_t>(part.start + static_cast<int64_t>(i) * part.step);
    if (offsets.empty()) {
      out.append(text[index]);
    } else {
      out.append(text.substr(offsets[index], code_point_at(text, offsets[index]).bytes));
    }
  }
  return make_string(vm, out.take(), string.markup);
}

}  // namespace

Value string_at(Interpreter& vm, const Value& object, size_t index) {
  const String& string = object.as<String>();
  const std::string_view text = string.text;
  if (string.single_bytes()) return make_string(vm, std::string(1, text[index]), string.markup);
  budget_of(vm).step_characters(index * 2);
  const size_t at = byte_offset(text, index);
  return make_string(vm, std::string(text.substr(at, code_point_at(text, at).bytes)),
                     string.markup);
}

Value find_attribute(Interpreter& vm, const Value& object, std::string_view name) {
  const Value field = find_field(vm, object, name);
  if (!field.is_missing()) return field;
  const MethodEntry* method =
      object.is_string() ? find_string_method(name) : find_method(object.kind(), name);
  return method != nullptr ? bind_method(vm, *method, object) : Value();
}

Value get_attribute(Interpreter& vm, const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) fail_undefined(vm, object);
  const Value found = find_attribute(vm, object, name);
  if (!found.is_missing()) return name[0] == '_' ? unsafe_part(vm, object, name) : found;
  if (object.is(Kind::kDict)) {
    if (const Value* item = object.as<Dict>().find(name)) return *item;
  }
  return undefined_part(vm, object, name);
}

Value get_item(Interpreter& vm, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail_undefined(vm, object);
  const Value found = find_item(vm, object, key);
  if (!found.is_missing()) return found;
  if (key.is_string()) {
    const std::string_view name = text_of(key);
    const Value attribute = find_attribute(vm, object, name);
    if (!attribute.is_missing()) {
      return !name.empty() && name[0] == '_' ? unsafe_part(vm, object, name) : attribute;
    }
  }
  return undefined_part(vm, object, key);
}

Value get_slice(Interpreter& vm, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is(Kind::kUndefined)) fail_undefined(vm, object);
  const bool is_sequence = object.is_string() || object.is(Kind::kList) ||
                           object.is(Kind::kTuple) || object.is(Kind::kRange);
  if (!is_sequence) fail("'", type_name(object), "' object cannot be sliced");
  const Selection part = select(static_cast<int64_t>(*length_of(vm, object)), start, stop, step);
  if (object.is_string()) return slice_string(vm, object, part);
  if (object.is(Kind::kRange)) {
    const Range& range = object.as<Range>();
    const Int exact_step = static_cast<Int>(range.step) * part.step;
    const int64_t by = index_or_fail(Value::integer(exact_step));
    const int64_t first = range.start + part.start * range.step;
    const Int past = first + static_cast<Int>(part.count) * by;
    const int64_t end = index_or_fail(Value::integer(past));
    return Value(Kind::kRange, new Range(&budget_of(vm), first, end, by));
  }
  std::vector<Value> items;
  items.reserve(part.count);
  for (size_t i = 0; i < part.count; ++i) {
    items.push_back(
        object.as<List>()
            .items[static_cast<size_t>(part.start + static_cast<int64_t>(i) * part.step)]);
  }
  return object.is(Kind::kList) ? make_list(vm, std::move(items))
                                : make_tuple(vm, std::move(items));
}

}  // namespace kvikk::jinja
