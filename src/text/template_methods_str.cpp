// The methods of strings. What they return is markup where the string is.

#include <algorithm>

#include "text/template_methods.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

const String& self_of(const Call& call) { return call.self.as<String>(); }

Value like_self(Interpreter& vm, const Call& call, std::string text) {
  return make_string(vm, std::move(text), self_of(call).markup);
}

std::string_view text_argument(const Call& call, const Value& value) {
  if (!value.is_string()) {
    fail("'", call.name, "' needs a str, not ", type_name(value));
  }
  return text_of(value);
}

// Markup escapes what is put into it.
std::string inserted(Interpreter& vm, const Call& call, const Value& value) {
  text_argument(call, value);
  const Value safe = self_of(call).markup ? escape(vm, value) : value;
  return std::string(text_of(safe));
}

bool is_absent(const Value& value) { return value.is_missing() || value.is_none(); }

template <std::string (*kMapping)(std::string_view)>
Value map_case(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  vm.budget().step_characters(self_of(call).text.size());
  return like_self(vm, call, kMapping(self_of(call).text));
}

// Whether there are characters and all of them are of one class.
template <bool (*kClass)(uint32_t)>
Value all_are(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  const std::string_view text = self_of(call).text;
  vm.budget().step_characters(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (!kClass(c.value)) return Value::boolean(false);
    i += c.bytes;
  }
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(uint32_t c) { return is_alpha(c) || is_numeric(c); }

Value is_ascii(Interpreter&, Call& call) {
  expect_positional(call, 0, 0);
  return Value::boolean(self_of(call).single_bytes());
}

Value all_printable(Interpreter& vm, Call& call) {
  return Value::boolean(self_of(call).text.empty() || truthy(vm, all_are<is_printable>(vm, call)));
}

Value is_identifier(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  const std::string_view text = self_of(call).text;
  vm.budget().step_characters(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (!(i == 0 ? is_identifier_start(c.value) : is_identifier_part(c.value))) {
      return Value::boolean(false);
    }
    i += c.bytes;
  }
  return Value::boolean(!text.empty());
}

// Some character of the wanted case and none of the other.
template <bool (*kWanted)(uint32_t), bool (*kOther)(uint32_t)>
Value is_cased_as(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  const std::string_view text = self_of(call).text;
  vm.budget().step_characters(text.size());
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (kOther(c.value) || is_title(c.value)) return Value::boolean(false);
    found = found || kWanted(c.value);
    i += c.bytes;
  }
  return Value::boolean(found);
}

Value is_title_text(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 0);
  const std::string_view text = self_of(call).text;
  vm.budget().step_characters(text.size());
  bool found = false, inside_word = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.bytes;
    const bool starts = is_upper(c.value) || is_title(c.value);
    const bool continues = is_lower(c.value);
    if ((starts && inside_word) || (continues && !inside_word)) return Value::boolean(false);
    inside_word = starts || continues;
    found = found || inside_word;
  }
  return Value::boolean(found);
}

// The part of a string that optional start and end arguments select.
struct Window {
  std::string_view text;
  size_t start;  // in characters
  bool exists;   // the start is not past the end
};

Window window(Interpreter& vm, const String& string, const Value& from, const Value& to) {
  const auto length = static_cast<int64_t>(string.length);
  const auto place = [&](const Value& value, int64_t otherwise) {
    if (is_absent(value)) return otherwise;
    if (!value.is_integral()) fail("slice indices must be integers or None");
    const auto index = static_cast<int64_t>(
        std::clamp<Int>(value.as_int(), -length - 1, static_cast<Int>(length) + 1));
    return std::max<int64_t>(index < 0 ? index + length : index, 0);
  };
  const int64_t start = place(from, 0), end = std::min(place(to, length), length);
  if (start > end) return {{}, static_cast<size_t>(start), false};
  std::string_view text = string.text;
  vm.budget().step_characters(string.single_bytes() ? text.size() / 8 : text.size());
  const auto first = static_cast<size_t>(start), count = static_cast<size_t>(end - start);
  if (string.single_bytes()) return {text.substr(first, count), first, true};
  text = text.substr(byte_offset(text, first));
  return {text.substr(0, byte_offset(text, count)), first, true};
}

// A search backwards is not linear: one for a long text pays for the worst case before, one for a
// separator pays for what it passed.
size_t find_last(Interpreter& vm, std::string_view text, std::string_view needle) {
  constexpr size_t kSeparatorBytesMax = 16;
  if (needle.size() > kSeparatorBytesMax) vm.budget().step(text.size() * needle.size() / 64 + 1);
  const size_t at = text.rfind(needle);
  vm.budget().step_bytes(text.size() - (at == text.npos ? 0 : at));
  return at;
}

template <bool kLast>
int64_t position(Interpreter& vm, const Call& call) {
  expect_positional(call, 1, 3);
  std::vector<Value> args = call.args;
  args.resize(3);
  const std::string_view needle = text_argument(call, args[0]);
  const Window in = window(vm, self_of(call), args[1], args[2]);
  if (!in.exists) return -1;
  const size_t at = kLast ? find_last(vm, in.text, needle) : find_text(in.text, needle);
  if (at == in.text.npos) return -1;
  return static_cast<int64_t>(in.start + count_code_points(in.text.substr(0, at)));
}

template <bool kLast>
Value find(Interpreter& vm, Call& call) {
  return Value::integer(position<kLast>(vm, call));
}

template <bool kLast>
Value index(Interpreter& vm, Call& call) {
  const int64_t at = position<kLast>(vm, call);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 3);
  std::vector<Value> args = call.args;
  args.resize(3);
  const std::string_view needle = text_argument(call, args[0]);
  const Window in = window(vm, self_of(call), args[1], args[2]);
  if (!in.exists) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<Int>(count_code_points(in.text) + 1));
  Int found = 0;
  for (size_t at = 0; (at = find_text(in.text, needle, at)) != in.text.npos;) {
    ++found;
    at += needle.size();
  }
  return Value::integer(found);
}

template <bool kAtEnd>
Value has_affix(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 3);
  std::vector<Value> args = call.args;
  args.resize(3);
  const Window in = window(vm, self_of(call), args[1], args[2]);
  const auto matches = [&](const Value& affix) {
    const std::string_view text = text_argument(call, affix);
    if (!in.exists || text.size() > in.text.size()) return false;
    return in.text.substr(kAtEnd ? in.text.size() - text.size() : 0, text.size()) == text;
  };
  if (!args[0].is(Kind::kTuple)) return Value::boolean(matches(args[0]));
  for (const Value& affix : args[0].as<List>().items) {
    vm.budget().step();
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kAtEnd>
Value remove_affix(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  const std::string_view affix = text_argument(call, call.args[0]);
  std::string_view text = self_of(call).text;
  if (affix.size() <= text.size() &&
      text.substr(kAtEnd ? text.size() - affix.size() : 0, affix.size()) == affix) {
    kAtEnd ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return like_self(vm, call, std::string(text));
}

template <bool kLeft, bool kRight>
Value strip(Interpreter& vm, Call& call) {
  expect_positional(call, 0, 1);
  std::string_view text = self_of(call).text;
  if (call.args.empty() || call.args[0].is_none()) {
    if (kLeft) text = strip_left(text);
    if (kRight) text = strip_right(text);
    return like_self(vm, call, std::string(text));
  }
  const std::string_view set = text_argument(call, call.args[0]);
  const auto in_set = [&](const CodePoint& c, size_t at) {
    vm.budget().step(set.size() / 32 + 1);
    return find_text(set, text.substr(at, c.bytes)) != set.npos;
  };
  while (kLeft && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!in_set(c, 0)) break;
    text.remove_prefix(c.bytes);
  }
  while (kRight && !text.empty()) {
    const CodePoint c = code_point_before(text, text.size());
    if (!in_set(c, text.size() - c.bytes)) break;
    text.remove_suffix(c.bytes);
  }
  return like_self(vm, call, std::string(text));
}

// The pieces of text between white space; what is beyond `most` splits stays together.
std::vector<std::string_view> split_words(Interpreter& vm, std::string_view text, int64_t most,
                                          bool from_right) {
  std::vector<std::string_view> words;
  const auto trim = [&] { text = from_right ? strip_right(text) : strip_left(text); };
  for (trim(); !text.empty(); trim()) {
    vm.budget().step();
    if (most >= 0 && static_cast<int64_t>(words.size()) == most) {
      words.push_back(text);
      break;
    }
    size_t length = 0;
    while (length < text.size()) {
      const CodePoint c =
          from_right ? code_point_before(text, text.size() - length) : code_point_at(text, length);
      if (is_space(c.value)) break;
      length += c.bytes;
    }
    words.push_back(from_right ? text.substr(text.size() - length) : text.substr(0, length));
    from_right ? text.remove_suffix(length) : text.remove_prefix(length);
  }
  if (from_right) std::reverse(words.begin(), words.end());
  return words;
}

std::vector<std::string_view> split_at(Interpreter& vm, std::string_view text,
                                       std::string_view separator, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    vm.budget().step();
    vm.budget().check_items(parts.size());
    const size_t at = from_right ? find_last(vm, text, separator) : find_text(text, separator);
    if (at == text.npos) break;
    const size_t after = at + separator.size();
    parts.push_back(from_right ? text.substr(after) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(after);
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value make_strings(Interpreter& vm, const Call& call, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (std::string_view part : parts) push_item(vm, items, like_self(vm, call, std::string(part)));
  return make_list(vm, std::move(items));
}

template <bool kFromRight>
Value split(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"sep", "maxsplit"}, 0);
  const std::string_view text = self_of(call).text;
  vm.budget().step_characters(is_absent(args[0]) ? text.size() : text.size() / 8);
  const int64_t most = args[1].is_missing() ? -1 : index_or_fail(args[1]);
  if (is_absent(args[0])) return make_strings(vm, call, split_words(vm, text, most, kFromRight));
  const std::string_view separator = text_argument(call, args[0]);
  if (separator.empty()) fail("empty separator");
  return make_strings(vm, call, split_at(vm, text, separator, most, kFromRight));
}

bool is_line_break(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value splitlines(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"keepends"}, 0);
  const bool keep = !args[0].is_missing() && truthy(vm, args[0]);
  return make_strings(vm, call, split_lines(vm, self_of(call).text, keep));
}

template <bool kFromRight>
Value partition(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  const std::string_view separator = text_argument(call, call.args[0]);
  if (separator.empty()) fail("empty separator");
  const std::string_view text = self_of(call).text;
  vm.budget().step_bytes(text.size());
  const size_t at = kFromRight ? find_last(vm, text, separator) : find_text(text, separator);
  std::string_view parts[3] = {text, {}, {}};
  if (at != text.npos) {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  } else if (kFromRight) {
    std::swap(parts[0], parts[2]);
  }
  std::vector<Value> items;
  for (std::string_view part : parts) items.push_back(like_self(vm, call, std::string(part)));
  return make_tuple(vm, std::move(items));
}

Value replace(Interpreter& vm, Call& call) {
  expect_positional(call, 2, 3);
  const std::string_view old = text_argument(call, call.args[0]);
  const std::string fresh = inserted(vm, call, call.args[1]);
  int64_t left = call.args.size() == 3 ? index_or_fail(call.args[2]) : -1;
  const std::string_view text = self_of(call).text;
  vm.budget().step_bytes(text.size());
  Text out(vm.budget());
  size_t at = 0;
  for (; left != 0; --left) {
    const size_t found = find_text(text, old, at);
    if (found == text.npos) break;
    out.append(text.substr(at, found - at));
    out.append(fresh);
    at = found + old.size();
    if (!old.empty()) continue;
    if (at == text.size()) break;  // between characters, so one of them goes along
    const size_t bytes = code_point_at(text, at).bytes;
    out.append(text.substr(at, bytes));
    at += bytes;
  }
  out.append(text.substr(std::min(at, text.size())));
  return like_self(vm, call, out.take());
}

Value join(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  Text out(vm.budget());
  const Ref<Iterator> source = iterate(vm, call.args[0]);
  bool first = true;
  for (Value item; read(vm, *source, item);) {
    if (!std::exchange(first, false)) out.append(self_of(call).text);
    if (self_of(call).markup) {
      out.append(text_of(escape(vm, item)));
    } else {
      out.append(text_argument(call, item));
    }
  }
  return like_self(vm, call, out.take());
}

enum class Align { kLeft, kRight, kCenter };

template <Align kAlign>
Value justify(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 2);
  const int64_t width = index_or_fail(call.args[0]);
  std::string fill = " ";
  if (call.args.size() == 2) {
    if (text_argument(call, call.args[1]).empty() || call.args[1].as<String>().length != 1) {
      fail("the fill character must be exactly one character long");
    }
    fill = inserted(vm, call, call.args[1]);
    if (count_code_points(fill) != 1) fail("the fill character must be one after escaping");
  }
  const String& self = self_of(call);
  const auto length = static_cast<int64_t>(self.length);
  const uint64_t pad = width > length ? static_cast<uint64_t>(width - length) : 0;
  uint64_t left = 0;
  if (kAlign == Align::kRight) left = pad;
  if (kAlign == Align::kCenter) left = pad / 2 + (pad & static_cast<uint64_t>(width) & 1);
  Text out(vm.budget());
  out.repeat(fill, left);
  out.append(self.text);
  out.repeat(fill, pad - left);
  return like_self(vm, call, out.take());
}

Value zfill(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 1);
  const int64_t width = index_or_fail(call.args[0]);
  const String& self = self_of(call);
  const auto length = static_cast<int64_t>(self.length);
  const std::string_view text = self.text;
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  Text out(vm.budget());
  if (has_sign) out.append(text[0]);
  if (width > length) out.repeat("0", static_cast<uint64_t>(width - length));
  out.append(text.substr(has_sign));
  return like_self(vm, call, out.take());
}

Value expandtabs(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"tabsize"}, 0);
  const int64_t size = args[0].is_missing() ? 8 : index_or_fail(args[0]);
  const std::string_view text = self_of(call).text;
  vm.budget().step_characters(text.size());
  Text out(vm.budget());
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (c.value == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.repeat(" ", static_cast<uint64_t>(spaces));
      column += spaces;
    } else {
      out.append(text.substr(i, c.bytes));
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    i += c.bytes;
  }
  return like_self(vm, call, out.take());
}

Value not_supported(Interpreter&, Call& call) {
  fail_unsupported("the string method '", call.name, "' is not supported");
}

constexpr MethodEntry kMethods[] = {
    {"capitalize", map_case<to_capitalized>},
    {"casefold", map_case<to_casefold>},
    {"center", justify<Align::kCenter>},
    {"count", count},
    {"encode", not_supported},
    {"endswith", has_affix<true>},
    {"expandtabs", expandtabs},
    {"find", find<false>},
    {"format", string_method_format},
    {"format_map", string_method_format_map},
    {"index", index<false>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", is_cased_as<is_lower, is_upper>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", all_printable},
    {"isspace", all_are<is_space>},
    {"istitle", is_title_text},
    {"isupper", is_cased_as<is_upper, is_lower>},
    {"join", join},
    {"ljust", justify<Align::kLeft>},
    {"lower", map_case<to_lower>},
    {"lstrip", strip<true, false>},
    {"maketrans", not_supported},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true>},
    {"rindex", index<true>},
    {"rjust", justify<Align::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", strip<true, true>},
    {"swapcase", map_case<to_swapped_case>},
    {"title", map_case<to_title>},
    {"translate", not_supported},
    {"upper", map_case<to_upper>},
    {"zfill", zfill},
};

}  // namespace

std::vector<std::string_view> split_lines(Interpreter& vm, std::string_view text, bool keep_ends) {
  vm.budget().step_characters(text.size());
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const size_t end = i;
    i += c.bytes;
    if (!is_line_break(c.value)) continue;
    vm.budget().step();
    if (c.value == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(start, (keep_ends ? i : end) - start));
    start = i;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

const MethodEntry* find_string_method(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kMethods), std::end(kMethods), name,
      [](const MethodEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != std::end(kMethods) && found->name == name ? found : nullptr;
}

}  // namespace kvikk::jinja
