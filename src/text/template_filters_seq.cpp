// Filters over sequences. Those that Python writes as generators are iterators here too: they
// compute an item when it is read, can be read once, and are true whatever they hold.

#include <algorithm>

#include "text/template_builtins.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

Value or_none(const Value& value) { return value.is_missing() ? Value::none() : value; }

bool flag(Interpreter& vm, const Value& value) { return !value.is_missing() && truthy(vm, value); }

Value ignore_case(Interpreter& vm, const Value& value) {
  if (!value.is_string()) return value;
  vm.budget().step_characters(text_of(value).size());
  return make_string(vm, to_lower(text_of(value)));
}

Value make_iterator(Iterator* iterator) { return Value(Kind::kIterator, iterator); }

// A filter or test that is called by its name for each item.
struct NamedCall {
  Builtin builtin = nullptr;
  std::string name;
  std::vector<Value> args;
  std::vector<std::pair<std::string, Value>> keywords;

  Value run(Interpreter& vm, const Value& item) const {
    Call call{name};
    call.args.reserve(args.size() + 1);
    call.args.push_back(item);
    call.args.insert(call.args.end(), args.begin(), args.end());
    call.keywords = keywords;
    return builtin(vm, call);
  }
};

NamedCall named_call(Interpreter& vm, const Call& call, size_t at, bool is_filter) {
  NamedCall named;
  if (!call.args[at].is_string()) fail("the name of a filter or test must be a str");
  named.name = std::string(text_of(call.args[at]));
  named.builtin = is_filter ? find_filter(named.name) : find_test(named.name);
  if (named.builtin == nullptr) {
    fail("no ", (is_filter ? "filter" : "test"), " named ", repr(vm, call.args[at]));
  }
  named.args.assign(call.args.begin() + static_cast<ptrdiff_t>(at) + 1, call.args.end());
  named.keywords = call.keywords;
  return named;
}

// What map, select and their kind have in common: nothing happens before the first item is read,
// and nothing at all for a value that is false.
class MappedItems : public Iterator {
 public:
  MappedItems(Interpreter& vm, Call call) : Iterator(&vm.budget()), call_(std::move(call)) {
    if (call_.args.empty()) fail("'", call_.name, "' lacks its value");
  }
  bool next(Interpreter& vm, Value& item) override {
    if (!started_) {
      started_ = true;
      if (truthy(vm, call_.args[0])) {
        prepare(vm, call_);
        source_ = iterate(vm, call_.args[0]);
      }
    }
    while (source_ && read(vm, *source_, item)) {
      if (accept(vm, item)) return true;
    }
    return false;
  }

 protected:
  virtual void prepare(Interpreter& vm, const Call& call) = 0;
  virtual bool accept(Interpreter& vm, Value& item) = 0;  // may change the item

 private:
  Call call_;
  bool started_ = false;
  Ref<Iterator> source_;
};

class Map final : public MappedItems {
 public:
  using MappedItems::MappedItems;

 private:
  void prepare(Interpreter& vm, const Call& call) override {
    const Value* attribute = call.keyword("attribute");
    if (call.args.size() == 1 && attribute != nullptr) {
      const Value* fallback = call.keyword("default");
      if (call.keywords.size() > (fallback != nullptr ? 2u : 1u)) {
        fail("'map' takes no other keyword beside 'attribute' and 'default'");
      }
      path_.emplace(vm, *attribute, fallback != nullptr ? *fallback : Value::none());
      return;
    }
    if (call.args.size() == 1) fail("'map' requires a filter argument");
    filter_ = named_call(vm, call, 1, true);
  }
  bool accept(Interpreter& vm, Value& item) override {
    item = path_ ? path_->get(vm, item) : filter_.run(vm, item);
    return true;
  }

  std::optional<AttributePath> path_;
  NamedCall filter_;
};

class Select final : public MappedItems {
 public:
  Select(Interpreter& vm, Call call, bool wanted, bool by_attribute)
      : MappedItems(vm, std::move(call)), wanted_(wanted), by_attribute_(by_attribute) {}

 private:
  void prepare(Interpreter& vm, const Call& call) override {
    size_t at = 1;
    if (by_attribute_) {
      if (call.args.size() == 1) fail("missing parameter for attribute name");
      path_.emplace(vm, call.args[at++]);
    }
    if (call.args.size() > at) test_ = named_call(vm, call, at, false);
  }
  bool accept(Interpreter& vm, Value& item) override {
    const Value subject = path_ ? path_->get(vm, item) : item;
    return truthy(vm, test_ ? test_->run(vm, subject) : subject) == wanted_;
  }

  bool wanted_;
  bool by_attribute_;
  std::optional<AttributePath> path_;
  std::optional<NamedCall> test_;
};

Value filter_map(Interpreter& vm, Call& call) { return make_iterator(new Map(vm, call)); }

template <bool kWanted, bool kByAttribute>
Value filter_select(Interpreter& vm, Call& call) {
  return make_iterator(new Select(vm, call, kWanted, kByAttribute));
}

// Lists of `count` items each.
class Batches final : public Iterator {
 public:
  Batches(Interpreter& vm, const std::vector<Value>& args)
      : Iterator(&vm.budget()),
        value_(args[0]),
        count_(index_or_fail(args[1])),
        fill_(or_none(args[2])) {}
  bool next(Interpreter& vm, Value& item) override {
    if (!started_) source_ = iterate(vm, value_);
    started_ = true;
    std::vector<Value> batch = std::move(ahead_);
    ahead_.clear();
    for (Value element; source_ && read(vm, *source_, element);) {
      if (static_cast<int64_t>(batch.size()) == count_) {
        ahead_.push_back(std::move(element));
        item = make_list(vm, std::move(batch));
        return true;
      }
      push_item(vm, batch, std::move(element));
    }
    source_ = {};
    if (batch.empty()) return false;
    if (!fill_.is_none()) {
      while (static_cast<int64_t>(batch.size()) < count_) push_item(vm, batch, fill_);
    }
    item = make_list(vm, std::move(batch));
    return true;
  }

 private:
  Value value_;
  int64_t count_;
  Value fill_;
  bool started_ = false;
  Ref<Iterator> source_;
  std::vector<Value> ahead_;
};

Value filter_batch(Interpreter& vm, Call& call) {
  return make_iterator(new Batches(vm, bind(call, {"value", "linecount", "fill_with"}, 2)));
}

// The items in `count` lists, the first ones longer by one where it does not divide.
class Slices final : public Iterator {
 public:
  Slices(Interpreter& vm, const std::vector<Value>& args)
      : Iterator(&vm.budget()), value_(args[0]), number_(args[1]), fill_(or_none(args[2])) {}
  bool next(Interpreter& vm, Value& item) override {
    if (!started_) {
      items_ = to_vector(vm, value_);
      count_ = index_or_fail(number_);
      if (count_ == 0) fail("division by zero");
    }
    started_ = true;
    if (at_ >= count_) return false;
    const auto size = static_cast<int64_t>(items_.size());
    const int64_t extra = size % count_, each = size / count_;
    const int64_t start = at_ * each + std::min(at_, extra);
    const int64_t end = start + each + (at_ < extra ? 1 : 0);
    std::vector<Value> part(items_.begin() + start, items_.begin() + end);
    if (!fill_.is_none() && at_ >= extra) part.push_back(fill_);
    ++at_;
    item = make_list(vm, std::move(part));
    return true;
  }

 private:
  Value value_, number_, fill_;
  bool started_ = false;
  std::vector<Value> items_;
  int64_t count_ = 0;
  int64_t at_ = 0;
};

Value filter_slice(Interpreter& vm, Call& call) {
  return make_iterator(new Slices(vm, bind(call, {"value", "slices", "fill_with"}, 2)));
}

class UniqueItems final : public Iterator {
 public:
  UniqueItems(Interpreter& vm, const std::vector<Value>& args)
      : Iterator(&vm.budget()),
        value_(args[0]),
        case_sensitive_(flag(vm, args[1])),
        path_(vm, or_none(args[2])),
        seen_(vm) {}
  bool next(Interpreter& vm, Value& item) override {
    if (!started_) source_ = iterate(vm, value_);
    started_ = true;
    while (read(vm, *source_, item)) {
      const Value key = path_.get(vm, item);
      const size_t before = seen_.size();
      seen_.set(case_sensitive_ ? key : ignore_case(vm, key), Value::none());
      if (seen_.size() != before) return true;
    }
    return false;
  }

 private:
  Value value_;
  bool case_sensitive_;
  AttributePath path_;
  DictBuilder seen_;
  bool started_ = false;
  Ref<Iterator> source_;
};

Value filter_unique(Interpreter& vm, Call& call) {
  return make_iterator(
      new UniqueItems(vm, bind(call, {"value", "case_sensitive", "attribute"}, 1)));
}

// x|items: like x.items(), but undefined has none, and what has none fails when it is read.
class MappingItems final : public Iterator {
 public:
  MappingItems(Interpreter& vm, Value value) : Iterator(&vm.budget()), value_(std::move(value)) {}
  bool next(Interpreter& vm, Value& item) override {
    if (value_.is(Kind::kUndefined)) return false;
    if (!value_.is(Kind::kDict)) fail("can only get item pairs from a mapping");
    const auto& entries = value_.as<Dict>().entries;
    if (at_ == entries.size()) return false;
    item = make_tuple(vm, {entries[at_].key, entries[at_].value});
    ++at_;
    return true;
  }

 private:
  Value value_;
  size_t at_ = 0;
};

Value filter_items(Interpreter& vm, Call& call) {
  return make_iterator(new MappingItems(vm, bind(call, {"value"}, 1)[0]));
}

Value filter_list(Interpreter& vm, Call& call) {
  return make_list(vm, to_vector(vm, bind(call, {"value"}, 1)[0]));
}

Value filter_first(Interpreter& vm, Call& call) {
  const Value sequence = bind(call, {"seq"}, 1)[0];
  Value item;
  if (read(vm, *iterate(vm, sequence), item)) return item;
  return make_undefined(vm, "no first item, sequence was empty");
}

Value filter_last(Interpreter& vm, Call& call) {
  const Value sequence = bind(call, {"seq"}, 1)[0];
  Value item;
  if (read(vm, *iterate_reversed(vm, sequence), item)) return item;
  return make_undefined(vm, "no last item, sequence was empty");
}

Value filter_reverse(Interpreter& vm, Call& call) {
  const Value value = bind(call, {"value"}, 1)[0];
  if (value.is_string()) {
    return get_slice(vm, value, Value::none(), Value::none(), Value::integer(-1));
  }
  if (is_reversible(value)) return make_iterator(iterate_reversed(vm, value).get());
  if (!is_iterable(value)) fail("argument must be iterable");
  std::vector<Value> items = to_vector(vm, value);
  std::reverse(items.begin(), items.end());
  return make_list(vm, std::move(items));
}

Value filter_join(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "d", "attribute"}, 1);
  const AttributePath path(vm, or_none(args[2]));
  const std::string between = args[1].is_missing() ? "" : str(vm, args[1]);
  Text out(vm.budget());
  const Ref<Iterator> source = iterate(vm, args[0]);
  bool first = true;
  for (Value item; read(vm, *source, item);) {
    if (!std::exchange(first, false)) out.append(between);
    append_str(vm, out, path.get(vm, item));
  }
  return make_string(vm, out.take());
}

// "a.b,c" sorts by a.b and then by c.
Value sort_key(Interpreter& vm, const std::vector<AttributePath>& paths, const Value& item,
               bool case_sensitive) {
  std::vector<Value> parts;
  for (const AttributePath& path : paths) {
    const Value part = path.get(vm, item);
    parts.push_back(case_sensitive ? part : ignore_case(vm, part));
  }
  return make_list(vm, std::move(parts));
}

Value filter_sort(Interpreter& vm, Call& call) {
  const std::vector<Value> args =
      bind(call, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  std::vector<AttributePath> paths;
  if (args[3].is_string()) {
    std::string_view names = text_of(args[3]);
    for (bool more = true; more;) {
      const size_t comma = names.find(',');
      more = comma != names.npos;
      paths.emplace_back(vm, make_string(vm, std::string(names.substr(0, comma))));
      if (more) names.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(vm, or_none(args[3]));
  }
  std::vector<Value> items = to_vector(vm, args[0]);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(sort_key(vm, paths, item, flag(vm, args[2])));
  sort_by_keys(vm, items, keys, flag(vm, args[1]));
  return make_list(vm, std::move(items));
}

Value filter_dictsort(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string by = args[2].is_missing() ? "key" : str(vm, args[2]);
  if (by != "key" && by != "value") fail("you can only sort by either 'key' or 'value'");
  if (args[0].is(Kind::kUndefined)) fail_undefined(vm, args[0]);
  if (!args[0].is(Kind::kDict)) fail("'dictsort' needs a dict");
  std::vector<Value> items, keys;
  for (const Dict::Entry& entry : args[0].as<Dict>().entries) {
    items.push_back(make_tuple(vm, {entry.key, entry.value}));
    const Value& key = by == "key" ? entry.key : entry.value;
    keys.push_back(flag(vm, args[1]) ? key : ignore_case(vm, key));
  }
  sort_by_keys(vm, items, keys, flag(vm, args[3]));
  return make_list(vm, std::move(items));
}

Value filter_groupby(Interpreter& vm, Call& call) {
  const std::vector<Value> args =
      bind(call, {"value", "attribute", "default", "case_sensitive"}, 2);
  const AttributePath path(vm, args[1], or_none(args[2]));
  const bool case_sensitive = flag(vm, args[3]);
  std::vector<Value> items = to_vector(vm, args[0]);
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(vm, item);
    return case_sensitive ? key : ignore_case(vm, key);
  };
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  sort_by_keys(vm, items, keys, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    const Value key = key_of(items[i]);
    std::vector<Value> group;
    for (; i < items.size() && equal(vm, key_of(items[i]), key); ++i) group.push_back(items[i]);
    if (group.empty()) group.push_back(items[i++]);  // a key that does not equal itself
    const Value name = case_sensitive ? key : path.get(vm, group[0]);
    groups.push_back(make_tuple(vm, {name, make_list(vm, std::move(group))}, true));
  }
  return make_list(vm, std::move(groups));
}

template <bool kLargest>
Value filter_extreme(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"value", "case_sensitive", "attribute"}, 1);
  const AttributePath path(vm, or_none(args[2]));
  const bool case_sensitive = flag(vm, args[1]);
  const Ref<Iterator> source = iterate(vm, args[0]);
  Value best, best_key;
  for (Value item; read(vm, *source, item);) {
    Value key = path.get(vm, item);
    if (!case_sensitive) key = ignore_case(vm, key);
    const bool better =
        best.is_missing() || (kLargest ? less(vm, best_key, key) : less(vm, key, best_key));
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best.is_missing() ? make_undefined(vm, "no aggregated item, sequence was empty") : best;
}

Value filter_sum(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"iterable", "attribute", "start"}, 1);
  const AttributePath path(vm, or_none(args[1]));
  Value sum = args[2].is_missing() ? Value::integer(0) : args[2];
  if (sum.is_string()) fail("'sum' cannot sum strings");
  const Ref<Iterator> source = iterate(vm, args[0]);
  for (Value item; read(vm, *source, item);) {
    sum = calculate(vm, Operator::kAdd, sum, path.get(vm, item));
  }
  return sum;
}

constexpr BuiltinEntry kFilters[] = {
    {"batch", filter_batch},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

AttributePath::AttributePath(Interpreter& vm, const Value& attribute, Value fallback)
    : fallback_(std::move(fallback)) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view path = text_of(attribute);
  for (bool more = true; more;) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    more = dot != path.npos;
    if (more) path.remove_prefix(dot + 1);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto number = digits ? parse_int(part, 10) : std::nullopt;
    push_item(vm, parts_, number ? *number : make_string(vm, std::string(part)));
  }
}

Value AttributePath::get(Interpreter& vm, Value item) const {
  for (const Value& part : parts_) {
    item = get_item(vm, item, part);
    if (!fallback_.is_none() && item.is(Kind::kUndefined)) item = fallback_;
  }
  return item;
}

Builtin find_sequence_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const BuiltinEntry& entry) { return entry.name == name; });
  return found != std::end(kFilters) ? found->builtin : nullptr;
}

}  // namespace kvikk::jinja
