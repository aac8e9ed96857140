#pragma once
// The methods of strings, containers and numbers. A builtin receives the value that the method
// belongs to as the call's `self`.

#include <string_view>

#include "text/template_interp.h"

namespace kvikk::jinja {

struct MethodEntry {
  std::string_view name;
  Builtin builtin;
};

// Null where the kind has no such method. A null builtin marks one that changes the object, which
// the sandbox forbids.
const MethodEntry* find_string_method(std::string_view name);      // template_methods_str.cpp
const MethodEntry* find_method(Kind kind, std::string_view name);  // template_methods.cpp

// The lines of a text by every line break that Python knows.
std::vector<std::string_view> split_lines(Interpreter& vm, std::string_view text, bool keep_ends);

Value string_method_format(Interpreter& vm, Call& call);  // template_format.cpp
Value string_method_format_map(Interpreter& vm, Call& call);

}  // namespace kvikk::jinja
