#pragma once
// The heap objects behind a Value, and what makes them. Everything here is immutable except those
// that derive from Cyclic or Iterator, Cycler and Joiner.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_ref.h"
#include "text/template_value.h"

namespace kvikk::jinja {

class Interpreter;
struct Call;
struct MacroBody;
struct Stmt;
struct Program;

struct String final : Object {
  String(Budget* budget, std::string content, bool is_markup);
  const std::string text;  // UTF-8 as far as the input was
  const size_t length;     // code points
  const bool markup;       // made by |safe or |escape: joining it to other text escapes that text
  bool single_bytes() const { return length == text.size(); }
};

// kList and kTuple. A group of |groupby is a tuple whose two items also have names.
struct List final : Object {
  List(Budget* budget, std::vector<Value> values, bool is_group = false);
  const std::vector<Value> items;
  const bool group;
};

// In order of insertion. Small ones are searched in line, larger ones through an index.
struct Dict final : Object {
  struct Entry {
    Value key;
    Value value;
  };
  Dict(Budget* budget, std::vector<Entry> content);
  const Value* find(std::string_view key) const;
  const Value* find(Interpreter& vm, const Value& key) const;
  const std::vector<Entry> entries;

 private:
  void build_index(Budget& budget);
  std::vector<uint32_t> index_;  // [power of two] entry + 1, 0 where free
};

// Collects the entries of a dict; a key that comes again keeps its place and takes the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Interpreter& vm) : vm_(vm) {}
  void set(const Value& key, Value value);
  size_t size() const { return entries_.size(); }
  Value finish();

 private:
  size_t locate(const Value& key, uint64_t hash);
  void grow();
  Interpreter& vm_;
  std::vector<Dict::Entry> entries_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> index_;
};

struct DictView final : Object {
  enum class Part { kKeys, kValues, kItems };
  DictView(Budget* budget, Value of, Part which)
      : Object(budget, sizeof(*this)), dict(std::move(of)), part(which) {}
  const Value dict;
  const Part part;
};

struct Range final : Object {
  Range(Budget* budget, int64_t from, int64_t to, int64_t by);
  int64_t at(size_t index) const { return start + static_cast<int64_t>(index) * step; }
  const int64_t start, stop, step;
  const size_t length;
};

// Prints as nothing, is false, has no items; anything else done with it is an error that says
// `hint` or, where that is empty, what `object` lacks.
struct Undefined final : Object {
  Undefined(Budget* budget, std::string why, Value of = {}, Value missing_name = {})
      : Object(budget, sizeof(*this) + why.size()),
        hint(std::move(why)),
        object(std::move(of)),
        name(std::move(missing_name)) {}
  std::string message(Interpreter& vm) const;
  const std::string hint;
  const Value object;
  const Value name;
};

// A source of values that is used up by reading it, like a Python generator: |map, |select, ...
struct Iterator : Object {
  explicit Iterator(Budget* budget, size_t bytes = 128) : Object(budget, bytes) {}
  virtual bool next(Interpreter& vm, Value& value) = 0;  // false at the end
  bool reading = false;  // a source that reads itself is an error, not a recursion
};

// Objects that can be changed and so can hold themselves: emptied when the render ends.
struct Cyclic : Object {
  Cyclic(Budget* budget, size_t bytes);
  ~Cyclic() override;
  virtual void clear() noexcept = 0;

 private:
  friend class Budget;
  Budget* owner_;
  Cyclic* previous_ = nullptr;
  Cyclic* next_ = nullptr;
};

// The variables of one call of a macro, a recursive loop, or the template itself. A macro keeps the
// frame in which it was defined, so it sees later changes there.
struct Frame final : Cyclic {
  Frame(Budget* budget, size_t slot_count, Ref<Frame> outer);
  void clear() noexcept override;
  std::vector<Value> slots;
  Ref<Frame> parent;
};

struct Namespace final : Cyclic {
  explicit Namespace(Budget* budget) : Cyclic(budget, sizeof(*this)) {}
  void clear() noexcept override { attributes.clear(); }
  const Value* find(std::string_view name) const;
  void set(Interpreter& vm, const Value& name, Value value);
  std::vector<Dict::Entry> attributes;  // keys are strings
};

// `loop` inside a for block.
struct Loop final : Cyclic {
  Loop(Budget* budget, Value over, Ref<Iterator> from, int64_t nesting);
  void clear() noexcept override;
  bool advance(Interpreter& vm);
  bool peek(Interpreter& vm);  // whether there is a next item; leaves it in `after`
  int64_t length(Interpreter& vm);

  Value iterable;
  Ref<Iterator> source;
  Value before, current, after;
  std::optional<std::vector<Value>> changed;
  int64_t index0 = -1;
  int64_t depth0;
  std::optional<int64_t> known_length;
  const Stmt* recursive = nullptr;  // the for block, where it is recursive
  Ref<Frame> closure;
};

struct Macro final : Object {
  Macro(Budget* budget, const MacroBody* definition, Ref<Frame> where)
      : Object(budget, sizeof(*this)), body(definition), closure(std::move(where)) {}
  const MacroBody* body;  // lives as long as the program that is being rendered
  Ref<Frame> closure;
};

using Builtin = Value (*)(Interpreter& vm, Call& call);
struct Function final : Object {
  Function(Budget* budget, const char* its_name, Builtin run)
      : Object(budget, sizeof(*this)), name(its_name), builtin(run) {}
  const char* name;
  Builtin builtin;
};

// A method with the value it belongs to, which the builtin receives as the call's `self`.
struct Method final : Object {
  Method(Budget* budget, const char* its_name, Builtin run, Value of)
      : Object(budget, sizeof(*this)), name(its_name), builtin(run), self(std::move(of)) {}
  const char* name;
  Builtin builtin;
  Value self;
};

struct Cycler final : Object {
  Cycler(Budget* budget, Value values) : Object(budget, sizeof(*this)), items(std::move(values)) {}
  const Value items;  // a tuple, not empty
  size_t position = 0;
};

struct Joiner final : Object {
  Joiner(Budget* budget, Value between)
      : Object(budget, sizeof(*this)), separator(std::move(between)) {}
  const Value separator;
  bool used = false;
};

}  // namespace kvikk::jinja
