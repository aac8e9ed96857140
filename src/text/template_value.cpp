// Budgets, reference counts and the construction of the heap objects.

#include "text/template_value.h"

#include <algorithm>

#include "text/template_objects.h"
#include "text/template_ops.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

constexpr size_t kLinearSearchMax = 8;  // entries; beyond, a dict has an index

size_t index_size_for(size_t entries) {
  size_t size = 16;
  while (size < entries * 2) size *= 2;
  return size;
}

}  // namespace

void throw_error(StatusCode code, int line, std::string message) {
  throw Error{code, std::move(message), line};
}

std::string join_parts(std::initializer_list<std::string_view> parts) {
  std::string joined;
  for (std::string_view part : parts) joined += part;
  return joined;
}

void fail_limit(std::string_view name, uint64_t limit) {
  throw_error(StatusCode::kExhausted, 0,
              concat("the template goes beyond ", name, " = ", std::to_string(limit)));
}

Budget::~Budget() {
  while (cyclic_ != nullptr) {
    const Ref<Cyclic> object(cyclic_);  // alive while it empties itself
    cyclic_ = object->next_;
    if (cyclic_ != nullptr) cyclic_->previous_ = nullptr;
    object->next_ = nullptr;
    object->owner_ = nullptr;
    object->clear();
  }
}

void Budget::out_of_steps() const { fail_limit("steps_max", limits_.steps_max); }

void Budget::check_items(size_t items) const {
  if (items > limits_.list_items_max) fail_limit("list_items_max", limits_.list_items_max);
}

void Budget::check_string(size_t bytes) const {
  if (bytes > limits_.string_bytes_max) fail_limit("string_bytes_max", limits_.string_bytes_max);
}

void Budget::allocate(size_t bytes) {
  if (bytes > limits_.memory_bytes_max || bytes_ > limits_.memory_bytes_max - bytes) {
    fail_limit("memory_bytes_max", limits_.memory_bytes_max);
  }
  bytes_ += bytes;
}

void Budget::bury(const Object* object) noexcept {
  object->next_dead_ = dead_;
  dead_ = object;
  if (burying_) return;
  burying_ = true;
  while (dead_ != nullptr) {
    const Object* next = dead_;
    dead_ = next->next_dead_;
    bytes_ -= next->bytes_;
    delete next;
  }
  burying_ = false;
}

Object::Object(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {
  if (budget_ != nullptr) budget_->allocate(bytes);
}

Object::~Object() = default;

void Object::release() const noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (budget_ != nullptr) {
    budget_->bury(this);
  } else {
    delete this;  // a constant: no deeper than its source could nest
  }
}

String::String(Budget* budget, std::string content, bool is_markup)
    : Object(budget, sizeof(*this) + content.capacity()),
      text(std::move(content)),
      length(count_code_points(text)),
      markup(is_markup) {}

List::List(Budget* budget, std::vector<Value> values, bool is_group)
    : Object(budget, sizeof(*this) + values.capacity() * sizeof(Value)),
      items(std::move(values)),
      group(is_group) {}

Dict::Dict(Budget* budget, std::vector<Entry> content)
    : Object(budget, sizeof(*this) + content.capacity() * (sizeof(Entry) + 16)),
      entries(std::move(content)) {
  if (entries.size() > kLinearSearchMax) build_index(*budget);
}

void Dict::build_index(Budget& budget) {
  index_.assign(index_size_for(entries.size()), 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    size_t at = hash_value(budget, entries[i].key) & (index_.size() - 1);
    while (index_[at] != 0) at = (at + 1) & (index_.size() - 1);
    index_[at] = static_cast<uint32_t>(i + 1);
  }
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Entry& entry) {
    return entry.key.is_string() && entry.key.as<String>().text == key;
  };
  if (index_.empty()) {
    const auto found = std::find_if(entries.begin(), entries.end(), matches);
    return found == entries.end() ? nullptr : &found->value;
  }
  for (size_t at = std::hash<std::string_view>()(key);; ++at) {
    const uint32_t slot = index_[at & (index_.size() - 1)];
    if (slot == 0) return nullptr;
    if (matches(entries[slot - 1])) return &entries[slot - 1].value;
  }
}

const Value* Dict::find(Interpreter& vm, const Value& key) const {
  if (key.is_string()) return find(key.as<String>().text);
  const uint64_t hash = hash_value(budget_of(vm), key);  // fails for what cannot be a key
  if (index_.empty()) {
    for (const Entry& entry : entries) {
      if (equal(vm, entry.key, key)) return &entry.value;
    }
    return nullptr;
  }
  for (size_t at = hash;; ++at) {
    const uint32_t slot = index_[at & (index_.size() - 1)];
    if (slot == 0) return nullptr;
    if (equal(vm, entries[slot - 1].key, key)) return &entries[slot - 1].value;
  }
}

size_t DictBuilder::locate(const Value& key, uint64_t hash) {
  size_t at = hash & (index_.size() - 1);
  while (index_[at] != 0) {
    const size_t entry = index_[at] - 1;
    if (hashes_[entry] == hash && equal(vm_, entries_[entry].key, key)) break;
    at = (at + 1) & (index_.size() - 1);
  }
  return at;
}

void DictBuilder::grow() {
  index_.assign(index_size_for(entries_.size() + 1), 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t at = hashes_[i] & (index_.size() - 1);
    while (index_[at] != 0) at = (at + 1) & (index_.size() - 1);
    index_[at] = static_cast<uint32_t>(i + 1);
  }
}

void DictBuilder::set(const Value& key, Value value) {
  const uint64_t hash = hash_value(budget_of(vm_), key);
  if ((entries_.size() + 1) * 2 > index_.size()) grow();
  const size_t at = locate(key, hash);
  if (index_[at] != 0) {
    entries_[index_[at] - 1].value = std::move(value);
    return;
  }
  budget_of(vm_).check_items(entries_.size() + 1);
  entries_.push_back({key, std::move(value)});
  hashes_.push_back(hash);
  index_[at] = static_cast<uint32_t>(entries_.size());
}

Value DictBuilder::finish() {
  return Value(Kind::kDict, new Dict(&budget_of(vm_), std::move(entries_)));
}

Range::Range(Budget* budget, int64_t from, int64_t to, int64_t by)
    : Object(budget, sizeof(*this)),
      start(from),
      stop(to),
      step(by),
      length(by > 0 ? (from < to ? (static_cast<uint64_t>(to) - static_cast<uint64_t>(from) - 1) /
                                           static_cast<uint64_t>(by) +
                                       1
                                 : 0)
                    : (from > to ? (static_cast<uint64_t>(from) - static_cast<uint64_t>(to) - 1) /
                                           (0 - static_cast<uint64_t>(by)) +
                                       1
                                 : 0)) {}

std::string Undefined::message(Interpreter& vm) const {
  if (!hint.empty()) return hint;
  if (object.is_missing()) return concat(repr(vm, name), " is undefined");
  const std::string of = object.is_none() ? "None" : concat(type_name(object), " object");
  if (!name.is_string()) return concat(of, " has no element ", repr(vm, name));
  return concat("'", of, "' has no attribute ", repr(vm, name));
}

Cyclic::Cyclic(Budget* budget, size_t bytes) : Object(budget, bytes), owner_(budget) {
  next_ = owner_->cyclic_;
  if (next_ != nullptr) next_->previous_ = this;
  owner_->cyclic_ = this;
}

Cyclic::~Cyclic() {
  if (owner_ == nullptr) return;
  if (previous_ != nullptr) {
    previous_->next_ = next_;
  } else {
    owner_->cyclic_ = next_;
  }
  if (next_ != nullptr) next_->previous_ = previous_;
}

Frame::Frame(Budget* budget, size_t slot_count, Ref<Frame> outer)
    : Cyclic(budget, sizeof(*this) + slot_count * sizeof(Value)),
      slots(slot_count),
      parent(std::move(outer)) {}

void Frame::clear() noexcept {
  slots.clear();
  parent = {};
}

const Value* Namespace::find(std::string_view name) const {
  for (const Dict::Entry& entry : attributes) {
    if (entry.key.is_string() && entry.key.as<String>().text == name) return &entry.value;
  }
  return nullptr;
}

void Namespace::set(Interpreter& vm, const Value& name, Value value) {
  for (Dict::Entry& entry : attributes) {
    if (equal(vm, entry.key, name)) {
      std::swap(entry.value, value);  // the old value dies after the new one is in place
      return;
    }
  }
  budget_of(vm).check_items(attributes.size() + 1);
  budget_of(vm).step(attributes.size());
  attributes.push_back({name, std::move(value)});
}

Loop::Loop(Budget* budget, Value over, Ref<Iterator> from, int64_t nesting)
    : Cyclic(budget, sizeof(*this)),
      iterable(std::move(over)),
      source(std::move(from)),
      depth0(nesting) {}

void Loop::clear() noexcept {
  iterable = before = current = after = Value();
  source = {};
  changed.reset();
  closure = {};
}

bool Loop::advance(Interpreter& vm) {
  Value item;
  if (!after.is_missing()) {
    item = std::move(after);
  } else if (!read(vm, *source, item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = std::move(item);
  return true;
}

bool Loop::peek(Interpreter& vm) {
  if (after.is_missing() && !read(vm, *source, after)) after = Value();
  return !after.is_missing();
}

int64_t Loop::length(Interpreter& vm) {
  if (!known_length) {
    if (const auto sized = length_of(vm, iterable)) {
      known_length = static_cast<int64_t>(*sized);
    } else {
      std::vector<Value> rest;
      for (Value item; read(vm, *source, item);) push_item(vm, rest, std::move(item));
      known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
      source = iterate(vm, make_list(vm, std::move(rest)));
    }
  }
  return *known_length;
}

void Text::repeat(std::string_view part, uint64_t times) {
  if (part.empty() || times == 0) return;
  const size_t limit = budget_.limits().string_bytes_max;
  if (times > (limit - text_.size()) / part.size()) budget_.check_string(limit + 1);
  const size_t start = text_.size(), bytes = part.size() * times;
  text_.reserve(start + bytes);
  text_.append(part);
  while (text_.size() - start < bytes) {  // what is there already, again
    const size_t there = text_.size() - start;
    text_.append(text_, start, std::min(there, bytes - there));
  }
  pay();
}

}  // namespace kvikk::jinja
