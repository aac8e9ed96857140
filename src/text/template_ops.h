#pragma once
// What Python's operators and built-in functions do with values: the vocabulary that the
// interpreter and all builtins share. All of these throw Error where Python would raise.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_objects.h"
#include "text/template_text.h"

namespace kvikk::jinja {

Budget& budget_of(Interpreter& vm);

// Making values.
Value make_string(Interpreter& vm, std::string text, bool markup = false);
Value make_list(Interpreter& vm, std::vector<Value> items);
Value make_tuple(Interpreter& vm, std::vector<Value> items, bool group = false);
Value make_undefined(Interpreter& vm, std::string hint);
Value make_undefined_name(Interpreter& vm, std::string_view name);
void push_item(Interpreter& vm, std::vector<Value>& items, Value item);

// Looking at values.
std::string_view type_name(const Value& value);
bool truthy(Interpreter& vm, const Value& value);
std::optional<size_t> length_of(Interpreter& vm, const Value& value);  // none where len() raises
bool is_callable(const Value& value);
std::string_view text_of(const Value& string);
bool is_markup(const Value& value);
[[noreturn]] void fail_undefined(Interpreter& vm, const Value& undefined);

// Printing: str() and repr().
void append_str(Interpreter& vm, Text& out, const Value& value);
void append_repr(Interpreter& vm, Text& out, const Value& value, int depth = 0);
std::string str(Interpreter& vm, const Value& value);
std::string repr(Interpreter& vm, const Value& value);
Value soft_str(Interpreter& vm, const Value& value);  // a string as it is, markup included
std::string float_repr(double value);
std::string int_text(Int value);
void append_escaped(Text& out, std::string_view text);  // & < > ' " for HTML
Value escape(Interpreter& vm, const Value& value);      // as markup; markup stays as it is
void append_string_repr(Text& out, std::string_view text);

// Comparing.
bool equal(Interpreter& vm, const Value& a, const Value& b, int depth = 0);
bool same_object(const Value& a, const Value& b);  // Python's `is`
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
bool compare(Interpreter& vm, CompareOp op, const Value& a, const Value& b);
bool less(Interpreter& vm, const Value& a, const Value& b, int depth = 0);
bool contains(Interpreter& vm, const Value& container, const Value& item);
// None for lists and dicts, which cannot be keys; hash_value fails for them.
std::optional<uint64_t> try_hash(Budget& budget, const Value& value, int depth = 0);
uint64_t hash_value(Budget& budget, const Value& value);
void sort_by_keys(Interpreter& vm, std::vector<Value>& items, const std::vector<Value>& keys,
                  bool reverse);

// Calculating.
enum class Operator { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
Value calculate(Interpreter& vm, Operator op, const Value& a, const Value& b);
Value negate(Interpreter& vm, const Value& value);
Value positive(Interpreter& vm, const Value& value);
Value round_number(Interpreter& vm, const Value& value, Int digits);
std::optional<Value> parse_int(std::string_view text, int base);  // none where int() raises
std::optional<double> parse_float(std::string_view text);
std::optional<int64_t> as_index(const Value& value);  // an int or bool that fits
int64_t index_or_fail(const Value& value);
std::string fixed_text(double value, int digits);

// Reaching into values.
Value get_attribute(Interpreter& vm, const Value& object, std::string_view name);
Value get_item(Interpreter& vm, const Value& object, const Value& key);
Value get_slice(Interpreter& vm, const Value& object, const Value& start, const Value& stop,
                const Value& step);
Value string_at(Interpreter& vm, const Value& string, size_t index);
// What `object.name` finds before items are looked at: methods and fields. Missing where none.
Value find_attribute(Interpreter& vm, const Value& object, std::string_view name);

// Iterating.
Ref<Iterator> iterate(Interpreter& vm, const Value& value);  // fails where iter() raises
Ref<Iterator> iterate_reversed(Interpreter& vm, const Value& value);
bool is_iterable(const Value& value);
bool is_reversible(const Value& value);
bool read(Interpreter& vm, Iterator& source, Value& item);
std::vector<Value> to_vector(Interpreter& vm, const Value& value);

// Formatting.
Value format_percent(Interpreter& vm, const Value& format, const Value& arguments);
std::string format_value(Interpreter& vm, const Value& value, std::string_view spec);

}  // namespace kvikk::jinja
