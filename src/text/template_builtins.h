#pragma once
// The filters, tests and global functions, by file. Each is a Builtin; the value that a filter or
// test applies to is its first argument.

#include "text/template_interp.h"

namespace kvikk::jinja {

struct BuiltinEntry {
  std::string_view name;
  Builtin builtin;
};

// template_json.cpp
Value filter_tojson(Interpreter& vm, Call& call);

// template_filters_seq.cpp: those over sequences, sorted by name.
Builtin find_sequence_filter(std::string_view name);

// What an attribute of a filter like map(attribute="a.b.0") reaches in `item`: the parts between
// dots, numbers as indexes. With `fallback` (none where missing) in place of what is undefined.
class AttributePath {
 public:
  AttributePath(Interpreter& vm, const Value& attribute, Value fallback = Value::none());
  Value get(Interpreter& vm, Value item) const;

 private:
  std::vector<Value> parts_;
  Value fallback_;
};

// The caller's variables count as made before the render, so they cost memory but no steps.
Value import_string(Interpreter& vm, std::string text);
Value import_list(Interpreter& vm, std::vector<Value> items);

}  // namespace kvikk::jinja
