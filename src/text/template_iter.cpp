// Iterators over every kind of value that has items.

#include "text/template_interp.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

class NoItems final : public Iterator {
 public:
  using Iterator::Iterator;
  bool next(Interpreter&, Value&) override { return false; }
};

// Lists, tuples and ranges, in either direction.
class IndexedItems final : public Iterator {
 public:
  IndexedItems(Interpreter& vm, Value sequence, bool reversed)
      : Iterator(&budget_of(vm)),
        sequence_(std::move(sequence)),
        left_(*length_of(vm, sequence_)),
        reversed_(reversed) {}
  bool next(Interpreter&, Value& item) override {
    if (left_ == 0) return false;
    const size_t at = reversed_ ? --left_ : (--left_, at_++);
    item = sequence_.is(Kind::kRange) ? Value::integer(sequence_.as<Range>().at(at))
                                      : sequence_.as<List>().items[at];
    return true;
  }

 private:
  Value sequence_;
  size_t at_ = 0;
  size_t left_;
  bool reversed_;
};

class Characters final : public Iterator {
 public:
  Characters(Interpreter& vm, Value string)
      : Iterator(&budget_of(vm)), string_(std::move(string)) {}
  bool next(Interpreter& vm, Value& item) override {
    const std::string_view text = text_of(string_);
    if (at_ == text.size()) return false;
    const size_t bytes = code_point_at(text, at_).bytes;
    item = make_string(vm, std::string(text.substr(at_, bytes)));
    at_ += bytes;
    return true;
  }

 private:
  Value string_;
  size_t at_ = 0;
};

class DictItems final : public Iterator {
 public:
  DictItems(Interpreter& vm, Value dict, DictView::Part part, bool reversed)
      : Iterator(&budget_of(vm)),
        dict_(std::move(dict)),
        part_(part),
        left_(dict_.as<Dict>().entries.size()),
        reversed_(reversed) {}
  bool next(Interpreter& vm, Value& item) override {
    if (left_ == 0) return false;
    const Dict::Entry& entry = dict_.as<Dict>().entries[reversed_ ? --left_ : (--left_, at_++)];
    switch (part_) {
      case DictView::Part::kKeys:
        item = entry.key;
        break;
      case DictView::Part::kValues:
        item = entry.value;
        break;
      case DictView::Part::kItems:
        item = make_tuple(vm, {entry.key, entry.value});
        break;
    }
    return true;
  }

 private:
  Value dict_;
  DictView::Part part_;
  size_t at_ = 0;
  size_t left_;
  bool reversed_;
};

// A loop object as something to iterate over: it hands out what is left of its items.
class LoopItems final : public Iterator {
 public:
  LoopItems(Interpreter& vm, Value loop) : Iterator(&budget_of(vm)), loop_(std::move(loop)) {}
  bool next(Interpreter& vm, Value& item) override {
    Loop& loop = loop_.as<Loop>();
    if (!loop.advance(vm)) return false;
    item = make_tuple(vm, {loop.current, loop_});
    return true;
  }

 private:
  Value loop_;
};

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

bool is_reversible(const Value& value) {
  return is_iterable(value) && !value.is(Kind::kIterator) && !value.is(Kind::kLoop);
}

Ref<Iterator> iterate(Interpreter& vm, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return Ref<Iterator>(new NoItems(&budget_of(vm)));
    case Kind::kString:
      return Ref<Iterator>(new Characters(vm, value));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return Ref<Iterator>(new IndexedItems(vm, value, false));
    case Kind::kDict:
      return Ref<Iterator>(new DictItems(vm, value, DictView::Part::kKeys, false));
    case Kind::kDictView: {
      const DictView& view = value.as<DictView>();
      return Ref<Iterator>(new DictItems(vm, view.dict, view.part, false));
    }
    case Kind::kIterator:
      return Ref<Iterator>(&value.as<Iterator>());
    case Kind::kLoop:
      return Ref<Iterator>(new LoopItems(vm, value));
    default:
      fail("'", type_name(value), "' object is not iterable");
  }
}

Ref<Iterator> iterate_reversed(Interpreter& vm, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return Ref<Iterator>(new NoItems(&budget_of(vm)));
    case Kind::kString: {
      const Value backwards =
          get_slice(vm, value, Value::none(), Value::none(), Value::integer(-1));
      return Ref<Iterator>(new Characters(vm, backwards));
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return Ref<Iterator>(new IndexedItems(vm, value, true));
    case Kind::kDict:
      return Ref<Iterator>(new DictItems(vm, value, DictView::Part::kKeys, true));
    case Kind::kDictView: {
      const DictView& view = value.as<DictView>();
      return Ref<Iterator>(new DictItems(vm, view.dict, view.part, true));
    }
    default:
      fail("'", type_name(value), "' object is not reversible");
  }
}

bool read(Interpreter& vm, Iterator& source, Value& item) {
  const Interpreter::Depth depth(vm);
  budget_of(vm).step();
  if (source.reading) fail("generator already executing");
  source.reading = true;
  bool more = false;
  try {
    more = source.next(vm, item);
  } catch (...) {
    source.reading = false;
    throw;
  }
  source.reading = false;
  return more;
}

std::vector<Value> to_vector(Interpreter& vm, const Value& value) {
  if (value.is(Kind::kList) || value.is(Kind::kTuple)) {
    budget_of(vm).step_items(value.as<List>().items.size());
    return value.as<List>().items;
  }
  std::vector<Value> items;
  const Ref<Iterator> source = iterate(vm, value);
  for (Value item; read(vm, *source, item);) push_item(vm, items, std::move(item));
  return items;
}

}  // namespace kvikk::jinja
