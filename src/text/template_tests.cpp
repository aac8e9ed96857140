// What may stand after `is`.

#include <algorithm>

#include "text/template_builtins.h"
#include "text/template_methods.h"

namespace kvikk::jinja {
namespace {

template <bool (*kHolds)(Interpreter&, const Value&)>
Value unary(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  return Value::boolean(kHolds(vm, call.args[0]));
}

template <CompareOp kOp>
Value comparison(Interpreter& vm, Call& call) {
  expect_positional(call, 2, 2);
  return Value::boolean(compare(vm, kOp, call.args[0], call.args[1]));
}

template <Kind... kKinds>
bool has_kind(Interpreter&, const Value& value) {
  return (value.is(kKinds) || ...);
}

bool is_defined(Interpreter&, const Value& value) { return !value.is(Kind::kUndefined); }
bool is_true(Interpreter&, const Value& value) {
  return value.is(Kind::kBool) && value.as_int() != 0;
}
bool is_false(Interpreter&, const Value& value) {
  return value.is(Kind::kBool) && value.as_int() == 0;
}
bool can_call(Interpreter&, const Value& value) { return is_callable(value); }
bool can_iterate(Interpreter&, const Value& value) { return is_iterable(value); }
bool is_escaped(Interpreter&, const Value& value) { return is_markup(value); }

Value rest(Interpreter& vm, const Value& value, const Value& divisor) {
  return calculate(vm, Operator::kMod, value, divisor);
}
bool is_odd(Interpreter& vm, const Value& value) {
  return equal(vm, rest(vm, value, Value::integer(2)), Value::integer(1));
}
bool is_even(Interpreter& vm, const Value& value) {
  return equal(vm, rest(vm, value, Value::integer(2)), Value::integer(0));
}

bool string_test(Interpreter& vm, const Value& value, const char* method) {
  Call call{method};
  call.self = soft_str(vm, value);
  return truthy(vm, find_string_method(method)->builtin(vm, call));
}
bool is_lower_text(Interpreter& vm, const Value& value) {
  return string_test(vm, value, "islower");
}
bool is_upper_text(Interpreter& vm, const Value& value) {
  return string_test(vm, value, "isupper");
}

bool is_filter(Interpreter& vm, const Value& value) {
  hash_value(vm.budget(), value);  // fails for what cannot be a key of the table of names
  return value.is_string() && find_filter(text_of(value)) != nullptr;
}
bool is_test(Interpreter& vm, const Value& value) {
  hash_value(vm.budget(), value);
  return value.is_string() && find_test(text_of(value)) != nullptr;
}

Value test_divisibleby(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "num"}, 2);
  return Value::boolean(equal(vm, rest(vm, args[0], args[1]), Value::integer(0)));
}

Value test_sameas(Interpreter&, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "other"}, 2);
  return Value::boolean(same_object(args[0], args[1]));
}

Value test_in(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "seq"}, 2);
  return Value::boolean(contains(vm, args[1], args[0]));
}

constexpr BuiltinEntry kTests[] = {
    {"!=", comparison<CompareOp::kNe>},
    {"<", comparison<CompareOp::kLt>},
    {"<=", comparison<CompareOp::kLe>},
    {"==", comparison<CompareOp::kEq>},
    {">", comparison<CompareOp::kGt>},
    {">=", comparison<CompareOp::kGe>},
    {"boolean", unary<has_kind<Kind::kBool>>},
    {"callable", unary<can_call>},
    {"defined", unary<is_defined>},
    {"divisibleby", test_divisibleby},
    {"eq", comparison<CompareOp::kEq>},
    {"equalto", comparison<CompareOp::kEq>},
    {"escaped", unary<is_escaped>},
    {"even", unary<is_even>},
    {"false", unary<is_false>},
    {"filter", unary<is_filter>},
    {"float", unary<has_kind<Kind::kFloat>>},
    {"ge", comparison<CompareOp::kGe>},
    {"greaterthan", comparison<CompareOp::kGt>},
    {"gt", comparison<CompareOp::kGt>},
    {"in", test_in},
    {"integer", unary<has_kind<Kind::kInt>>},
    {"iterable", unary<can_iterate>},
    {"le", comparison<CompareOp::kLe>},
    {"lessthan", comparison<CompareOp::kLt>},
    {"lower", unary<is_lower_text>},
    {"lt", comparison<CompareOp::kLt>},
    {"mapping", unary<has_kind<Kind::kDict>>},
    {"ne", comparison<CompareOp::kNe>},
    {"none", unary<has_kind<Kind::kNone>>},
    {"number", unary<has_kind<Kind::kBool, Kind::kInt, Kind::kFloat>>},
    {"odd", unary<is_odd>},
    {"sameas", test_sameas},
    {"sequence", unary<has_kind<Kind::kUndefined, Kind::kString, Kind::kList, Kind::kTuple,
                                Kind::kDict, Kind::kRange>>},
    {"string", unary<has_kind<Kind::kString>>},
    {"test", unary<is_test>},
    {"true", unary<is_true>},
    {"undefined", unary<has_kind<Kind::kUndefined>>},
    {"upper", unary<is_upper_text>},
};

}  // namespace

Builtin find_test(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kTests), std::end(kTests), name,
      [](const BuiltinEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != std::end(kTests) && found->name == name ? found->builtin : nullptr;
}

}  // namespace kvikk::jinja
