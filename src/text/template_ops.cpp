// Truth, equality, order, membership, hashing, sorting: Python's rules for its own types.

#include "text/template_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

void check_depth(const Budget& budget, int depth) {
  const int limit = budget.limits().value_depth_max;
  if (depth > limit) fail_limit("value_depth_max", static_cast<uint64_t>(limit));
}

// Compares an integer with a double exactly: -1, 0, 1; 2 where the double is no number.
int order(Int a, double b) {
  if (std::isnan(b)) return 2;
  constexpr double kIntLimit = 1.7e38;
  if (b >= kIntLimit) return -1;
  if (b <= -kIntLimit) return 1;
  const double whole = std::floor(b);
  const Int floor_b = static_cast<Int>(whole);
  if (a != floor_b) return a < floor_b ? -1 : 1;
  return b > whole ? -1 : 0;
}

// The same for any two numbers.
int order(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  if (a.is_integral()) return order(a.as_int(), b.as_real());
  if (b.is_integral()) {
    const int reversed = order(b.as_int(), a.as_real());
    return reversed == 2 ? 2 : -reversed;
  }
  const double x = a.as_real(), y = b.as_real();
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

bool equal_items(Interpreter& vm, const std::vector<Value>& a, const std::vector<Value>& b,
                 int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_object(a[i], b[i]) && !equal(vm, a[i], b[i], depth)) return false;
  }
  return true;
}

bool equal_dicts(Interpreter& vm, const Dict& a, const Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Dict::Entry& entry : a.entries) {
    budget_of(vm).step();
    const Value* other = b.find(vm, entry.key);
    if (other == nullptr) return false;
    if (!same_object(entry.value, *other) && !equal(vm, entry.value, *other, depth)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.length != b.length) return false;
  if (a.length == 0) return true;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

bool less_items(Interpreter& vm, const std::vector<Value>& a, const std::vector<Value>& b,
                int depth) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (same_object(a[i], b[i]) || equal(vm, a[i], b[i], depth)) continue;
    return less(vm, a[i], b[i], depth);
  }
  return a.size() < b.size();
}

[[noreturn]] void fail_order(std::string_view op, const Value& a, const Value& b) {
  fail("'", op, "' not supported between instances of '", type_name(a), "' and '", type_name(b),
       "'");
}

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 29;
}

uint64_t hash_text(Budget& budget, std::string_view text) {
  budget.step_bytes(text.size());
  return std::hash<std::string_view>()(text);
}

uint64_t hash_int(Int value) {
  return mix(static_cast<uint64_t>(value) ^ mix(static_cast<uint64_t>(value >> 64)));
}

uint64_t hash_real(double value) {
  constexpr double kIntLimit = 1.7e38;
  if (std::fabs(value) < kIntLimit && value == std::floor(value)) {
    return hash_int(static_cast<Int>(value));
  }
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return mix(bits);
}

bool contains_text(Interpreter& vm, const Value& container, const Value& item) {
  if (item.is(Kind::kUndefined) || !item.is_string()) {
    fail("'in <string>' requires string as left operand, not ", type_name(item));
  }
  budget_of(vm).step_bytes(text_of(container).size() * 2 + text_of(item).size() * 2);
  return find_text(text_of(container), text_of(item)) != std::string_view::npos;
}

bool contains_number(const Range& range, const Value& item) {
  constexpr double kIndexLimit = 9.2e18;
  if (!item.is_number() || !(std::fabs(item.as_real()) < kIndexLimit)) return false;
  if (item.is(Kind::kFloat) && item.as_real() != std::floor(item.as_real())) return false;
  const Int value = item.is(Kind::kFloat) ? static_cast<Int>(item.as_real()) : item.as_int();
  const Int offset = value - range.start;
  return offset % range.step == 0 && offset / range.step >= 0 &&
         offset / range.step < static_cast<Int>(range.length);
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
      return "missing";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kString:
      return value.as<String>().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      return "dict view";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

std::string_view text_of(const Value& string) { return string.as<String>().text; }

bool is_markup(const Value& value) { return value.is_string() && value.as<String>().markup; }

void fail_undefined(Interpreter& vm, const Value& undefined) {
  fail(undefined.as<Undefined>().message(vm));
}

bool truthy(Interpreter& vm, const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kString:
      return !text_of(value).empty();
    case Kind::kLoop:
      return value.as<Loop>().length(vm) != 0;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
      return *length_of(vm, value) != 0;
    default:
      return true;
  }
}

std::optional<size_t> length_of(Interpreter& vm, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.as<String>().length;
    case Kind::kList:
    case Kind::kTuple:
      return value.as<List>().items.size();
    case Kind::kDict:
      return value.as<Dict>().entries.size();
    case Kind::kDictView:
      return value.as<DictView>().dict.as<Dict>().entries.size();
    case Kind::kRange:
      return value.as<Range>().length;
    case Kind::kLoop:
      return static_cast<size_t>(value.as<Loop>().length(vm));
    default:
      return std::nullopt;
  }
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:  // it has a call, which fails
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kJoiner:
      return true;
    default:
      return false;
  }
}

bool same_object(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_object()) return a.object() == b.object();
  if (a.is(Kind::kFloat)) return false;
  // Python keeps one object for each small integer.
  if (a.is(Kind::kInt)) return a.as_int() == b.as_int() && a.as_int() >= -5 && a.as_int() <= 256;
  return !a.is(Kind::kBool) || a.as_int() == b.as_int();
}

bool equal(Interpreter& vm, const Value& a, const Value& b, int depth) {
  budget_of(vm).step();
  check_depth(budget_of(vm), depth);
  if (a.is_number() && b.is_number()) return order(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      budget_of(vm).step_bytes(text_of(a).size());
      return text_of(a) == text_of(b);
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(vm, a.as<List>().items, b.as<List>().items, depth + 1);
    case Kind::kDict:
      return equal_dicts(vm, a.as<Dict>(), b.as<Dict>(), depth + 1);
    case Kind::kRange:
      return equal_ranges(a.as<Range>(), b.as<Range>());
    default:
      return a.object() == b.object();
  }
}

bool less(Interpreter& vm, const Value& a, const Value& b, int depth) {
  budget_of(vm).step();
  check_depth(budget_of(vm), depth);
  if (a.is_number() && b.is_number()) return order(a, b) == -1;
  if (a.is(Kind::kUndefined)) fail_undefined(vm, a);
  if (b.is(Kind::kUndefined)) fail_undefined(vm, b);
  if (a.kind() == b.kind()) {
    if (a.is_string()) return text_of(a) < text_of(b);  // bytes order as code points do
    if (a.is(Kind::kList) || a.is(Kind::kTuple)) {
      return less_items(vm, a.as<List>().items, b.as<List>().items, depth + 1);
    }
  }
  fail_order("<", a, b);
}

bool compare(Interpreter& vm, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return equal(vm, a, b);
    case CompareOp::kNe:
      return !equal(vm, a, b);
    case CompareOp::kLt:
      return less(vm, a, b);
    case CompareOp::kGt:
      return less(vm, b, a);
    case CompareOp::kIn:
      return contains(vm, b, a);
    case CompareOp::kNotIn:
      return !contains(vm, b, a);
    case CompareOp::kLe:
    case CompareOp::kGe:
      break;
  }
  const Value& low = op == CompareOp::kLe ? a : b;
  const Value& high = op == CompareOp::kLe ? b : a;
  if (low.is_number() && high.is_number()) {
    const int how = order(low, high);
    return how == -1 || how == 0;  // not for a NaN
  }
  return !less(vm, high, low);
}

bool contains(Interpreter& vm, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      return contains_text(vm, container, item);
    case Kind::kDict:
      return container.as<Dict>().find(vm, item) != nullptr;
    case Kind::kRange:
      return contains_number(container.as<Range>(), item);
    case Kind::kDictView:
      if (container.as<DictView>().part != DictView::Part::kKeys) break;
      return container.as<DictView>().dict.as<Dict>().find(vm, item) != nullptr;
    default:
      break;
  }
  if (!is_iterable(container)) {
    fail("argument of type '", type_name(container), "' is not iterable");
  }
  const Ref<Iterator> source = iterate(vm, container);
  for (Value value; read(vm, *source, value);) {
    if (same_object(value, item) || equal(vm, value, item)) return true;
  }
  return false;
}

std::optional<uint64_t> try_hash(Budget& budget, const Value& value, int depth) {
  budget.step();
  check_depth(budget, depth);
  switch (value.kind()) {
    case Kind::kNone:
      return mix(1);
    case Kind::kBool:
    case Kind::kInt:
      return hash_int(value.as_int());
    case Kind::kFloat:
      return hash_real(value.as_real());
    case Kind::kUndefined:
      return mix(2);
    case Kind::kString:
      return hash_text(budget, text_of(value));
    case Kind::kTuple: {
      uint64_t hash = 3;
      for (const Value& item : value.as<List>().items) {
        const auto part = try_hash(budget, item, depth + 1);
        if (!part) return std::nullopt;
        hash = mix(hash * 31 + *part);
      }
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return std::nullopt;
    case Kind::kRange:
      return mix(value.as<Range>().length);
    default:
      return mix(reinterpret_cast<uintptr_t>(value.object()));
  }
}

uint64_t hash_value(Budget& budget, const Value& value) {
  const auto hash = try_hash(budget, value);
  if (!hash) fail("unhashable type: '", type_name(value), "'");
  return *hash;
}

// Stable, like Python's: merges runs of doubling length, smallest key first. With `reverse` the
// largest comes first, and equal ones still keep their order.
void sort_by_keys(Interpreter& vm, std::vector<Value>& items, const std::vector<Value>& keys,
                  bool reverse) {
  std::vector<size_t> order_now(items.size()), merged(items.size());
  for (size_t i = 0; i < items.size(); ++i) order_now[i] = i;
  const auto comes_before = [&](size_t a, size_t b) {
    return reverse ? less(vm, keys[b], keys[a]) : less(vm, keys[a], keys[b]);
  };
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t low = 0; low < items.size(); low += 2 * width) {
      const size_t middle = std::min(low + width, items.size());
      const size_t high = std::min(low + 2 * width, items.size());
      size_t left = low, right = middle;
      for (size_t at = low; at < high; ++at) {
        const bool take_right =
            left == middle || (right < high && comes_before(order_now[right], order_now[left]));
        merged[at] = order_now[take_right ? right++ : left++];
      }
    }
    order_now.swap(merged);
  }
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (size_t i : order_now) sorted.push_back(items[i]);
  items = std::move(sorted);
}

}  // namespace kvikk::jinja
