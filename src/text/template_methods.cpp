// The methods of lists, dicts, numbers and the objects of the runtime. Lists and dicts know the
// methods that would change them, so that templates can see that they are there, and no more.

#include "text/template_methods.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace kvikk::jinja {
namespace {

const std::vector<Value>& items_of(const Call& call) { return call.self.as<List>().items; }

Value sequence_count(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  Int found = 0;
  for (const Value& item : to_vector(vm, call.self)) found += equal(vm, item, call.args[0]);
  return Value::integer(found);
}

Value sequence_index(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 3);
  const std::vector<Value> items = to_vector(vm, call.self);
  const auto length = static_cast<int64_t>(items.size());
  const auto place = [&](size_t which, int64_t otherwise) {
    if (call.args.size() <= which) return otherwise;
    const int64_t index = index_or_fail(call.args[which]);
    return std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  };
  const int64_t end = place(2, length);
  for (int64_t i = place(1, 0); i < end; ++i) {
    if (equal(vm, items[static_cast<size_t>(i)], call.args[0])) return Value::integer(i);
  }
  fail(repr(vm, call.args[0]), " is not in the list");
}

Value list_copy(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  return make_list(vm, items_of(call));
}

Value dict_get(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 2);
  const Value* found = call.self.as<Dict>().find(vm, call.args[0]);
  if (found != nullptr) return *found;
  return call.args.size() == 2 ? call.args[1] : Value::none();
}

template <DictView::Part kPart>
Value dict_view(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  return Value(Kind::kDictView, new DictView(&vm.budget(), call.self, kPart));
}

Value dict_copy(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  return call.self;  // dicts never change
}

Value dict_fromkeys(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 2);
  DictBuilder dict(vm);
  for (const Value& key : to_vector(vm, call.args[0])) {
    dict.set(key, call.args.size() == 2 ? call.args[1] : Value::none());
  }
  return dict.finish();
}

Value int_bit_length(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  auto rest =
      static_cast<UnsignedInt>(call.self.as_int() < 0 ? -call.self.as_int() : call.self.as_int());
  Int bits = 0;
  for (; rest != 0; rest >>= 1) ++bits;
  return Value::integer(bits);
}

Value number_conjugate(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  return call.self.is(Kind::kFloat) ? call.self : Value::integer(call.self.as_int());
}

Value float_is_integer(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  const double real = call.self.as_real();
  return Value::boolean(std::isfinite(real) && real == std::floor(real));
}

Value loop_cycle(Interpreter&, Call& call) {
  if (!call.keywords.empty()) fail("'cycle' takes no keyword arguments");
  if (call.args.empty()) fail("no items for cycling given");
  const auto index = static_cast<size_t>(call.self.as<Loop>().index0);
  return call.args[index % call.args.size()];
}

Value loop_changed(Interpreter& vm, Call& call) {
  if (!call.keywords.empty()) fail("'changed' takes no keyword arguments");
  Loop& loop = call.self.as<Loop>();
  if (loop.changed && loop.changed->size() == call.args.size()) {
    bool same = true;
    for (size_t i = 0; i < call.args.size() && same; ++i) {
      same = same_object((*loop.changed)[i], call.args[i]) ||
             equal(vm, (*loop.changed)[i], call.args[i]);
    }
    if (same) return Value::boolean(false);
  }
  loop.changed = call.args;
  return Value::boolean(true);
}

Value cycler_next(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  Cycler& cycler = call.self.as<Cycler>();
  const std::vector<Value>& items = cycler.items.as<List>().items;
  return items[std::exchange(cycler.position, (cycler.position + 1) % items.size())];
}

Value cycler_reset(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  call.self.as<Cycler>().position = 0;
  return Value::none();
}

constexpr MethodEntry kListMethods[] = {
    {"append", nullptr}, {"clear", nullptr},        {"copy", list_copy}, {"count", sequence_count},
    {"extend", nullptr}, {"index", sequence_index}, {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr}, {"reverse", nullptr},      {"sort", nullptr},
};
constexpr MethodEntry kSequenceMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kDictMethods[] = {
    {"clear", nullptr},
    {"copy", dict_copy},
    {"fromkeys", dict_fromkeys},
    {"get", dict_get},
    {"items", dict_view<DictView::Part::kItems>},
    {"keys", dict_view<DictView::Part::kKeys>},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
    {"values", dict_view<DictView::Part::kValues>},
};
constexpr MethodEntry kIntMethods[] = {{"bit_length", int_bit_length},
                                       {"conjugate", number_conjugate}};
constexpr MethodEntry kFloatMethods[] = {{"conjugate", number_conjugate},
                                         {"is_integer", float_is_integer}};
constexpr MethodEntry kLoopMethods[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};
constexpr MethodEntry kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

template <size_t N>
const MethodEntry* find_in(const MethodEntry (&table)[N], std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [&](const MethodEntry& entry) { return entry.name == name; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

const MethodEntry* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(kSequenceMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kBool:
    case Kind::kInt:
      return find_in(kIntMethods, name);
    case Kind::kFloat:
      return find_in(kFloatMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    case Kind::kCycler:
      return find_in(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace kvikk::jinja
