// Format specifications.

#include "text/template_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

constexpr int kPrecisionMax = 1000;  // digits after the point

bool one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

// Separators between groups of digits at the front of `text`.
std::string grouped(std::string text, char separator, size_t group) {
  size_t end = text.find_first_not_of("0123456789abcdefABCDEF");
  if (end == text.npos) end = text.size();
  for (size_t at = end; at > group; at -= group) text.insert(at - group, 1, separator);
  return text;
}

// %g: `precision` significant digits, in the shorter of the two notations, without zeros at the
// end. `exponent_end`: the first exponent that needs the notation with one.
std::string general_text(double value, int precision, int exponent_end, bool alternate) {
  std::array<char, kPrecisionMax + 32> buffer;
  const auto end = buffer.data() + buffer.size();
  precision = std::max(precision, 1);
  auto result =
      std::to_chars(buffer.data(), end, value, std::chars_format::scientific, precision - 1);
  std::string text(buffer.data(), result.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  std::string tail = text.substr(e);
  std::string digits = text.substr(0, e);
  if (exponent >= -4 && exponent < exponent_end) {
    digits = fixed_text(value, precision - 1 - exponent);
    tail.clear();
  }
  if (!alternate && digits.find('.') != digits.npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + tail;
}

std::string scientific_text(double value, int precision) {
  std::array<char, kPrecisionMax + 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific, precision);
  return std::string(buffer.data(), result.ptr);
}

// A number that is not negative, by its type e, f or g.
std::string real_text(double value, const Spec& spec, char type, int precision) {
  std::string text;
  const char lower = static_cast<char>(type | 0x20);
  if (!std::isfinite(value)) {
    text = std::isnan(value) ? "nan" : "inf";
  } else if (lower == 'f') {
    text = fixed_text(value, precision);
  } else if (lower == 'e') {
    text = scientific_text(value, precision);
  } else {
    const int exponent_end = std::max(precision, 1) - (spec.type == '\0' ? 1 : 0);
    text = general_text(value, precision, exponent_end, spec.alternate);
  }
  return type == lower ? text : to_upper(text);
}

// The specification after the colon of a replacement field.
Spec parse_spec(std::string_view text) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const auto digits = [&](int64_t& number) {
    constexpr int64_t kWidthMax = int64_t{1} << 40;  // far beyond every string limit
    while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
      number = std::min(kWidthMax, number * 10 + (text[0] - '0'));
      text.remove_prefix(1);
    }
  };
  const auto skip = [&](std::string_view any) {
    const bool here = !text.empty() && any.find(text[0]) != any.npos;
    if (here) text.remove_prefix(1);
    return here;
  };
  const size_t first = text.empty() ? 0 : code_point_at(text, 0).bytes;
  const bool has_fill = text.size() > first && first > 0 && is_align(text[first]);
  if (has_fill) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty() && (text[0] == '+' || text[0] == '-' || text[0] == ' ')) {
    spec.sign = text[0];
    text.remove_prefix(1);
  }
  spec.alternate = skip("#");
  if (!has_fill && skip("0")) {
    spec.fill = "0";
    if (spec.align == '\0') spec.align = '=';
  }
  digits(spec.width);
  spec.comma = skip(",");
  spec.underscore = skip("_");
  if (spec.comma && spec.underscore) fail("cannot specify both ',' and '_'");
  if (skip(".")) {
    if (text.empty() || text[0] < '0' || text[0] > '9') fail("format specifier missing precision");
    int64_t precision = 0;
    digits(precision);
    spec.precision = checked_precision(precision);
  }
  if (text.size() > 1) fail("invalid format specifier");
  if (!text.empty()) spec.type = text[0];
  return spec;
}

[[noreturn]] void fail_type(char type, const Value& value) {
  fail("unknown format code '", type, "' for object of type '", type_name(value), "'");
}

}  // namespace

int checked_precision(int64_t precision) {
  if (precision > kPrecisionMax) fail("precision too big");
  return static_cast<int>(precision);
}

void append_padded(Text& out, std::string_view sign, std::string_view body, const Spec& spec,
                   char default_align) {
  const auto length = static_cast<int64_t>(sign.size() + count_code_points(body));
  const uint64_t pad = spec.width > length ? static_cast<uint64_t>(spec.width - length) : 0;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const uint64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  out.repeat(spec.fill, left);
  out.append(sign);
  if (align == '=') out.repeat(spec.fill, pad);
  out.append(body);
  if (align != '=') out.repeat(spec.fill, pad - left);
}

std::string_view sign_of(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

std::string digits_in_base(Int value, int base, bool upper) {
  auto rest = value < 0 ? 0 - static_cast<UnsignedInt>(value) : static_cast<UnsignedInt>(value);
  std::string digits;
  do {
    const auto digit = static_cast<size_t>(rest % static_cast<unsigned>(base));
    digits.insert(digits.begin(), (upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit]);
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  return digits;
}

void format_real(Text& out, double value, const Spec& spec) {
  char type = spec.type;
  int precision = spec.precision < 0 ? 6 : spec.precision;
  const double size = std::fabs(value);
  std::string text;
  if (type == '%') {
    text = concat(real_text(size * 100, spec, 'f', precision), "%");
  } else if (type == '\0' && spec.precision < 0) {
    text = float_repr(size);
  } else if (type == '\0') {
    text = real_text(size, spec, 'g', precision);
    const bool plain = text.find_first_not_of("0123456789") == text.npos;
    if (plain) text += ".0";
  } else {
    text = real_text(size, spec, type == 'n' ? 'g' : type, precision);
  }
  if (spec.comma || spec.underscore) text = grouped(text, spec.comma ? ',' : '_', 3);
  append_padded(out, sign_of(std::signbit(value) && !std::isnan(value), spec), text, spec, '>');
}

void format_int(Text& out, Int value, const Spec& spec) {
  const char lower = static_cast<char>(spec.type | 0x20);
  if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail("%c arg is no character");
    }
    std::string text;
    append_code_point(text, static_cast<uint32_t>(value));
    return append_padded(out, "", text, spec, '<');
  }
  const int base = lower == 'x' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string text = digits_in_base(value, base, spec.type == 'X');
  if (spec.comma && base != 10) fail("cannot specify ',' with this format");
  if (spec.comma || spec.underscore) {
    text = grouped(text, spec.comma ? ',' : '_', base == 10 ? 3 : 4);
  }
  std::string sign(sign_of(value < 0, spec));
  if (spec.alternate && base != 10) sign += concat("0", spec.type);
  append_padded(out, sign, text, spec, '>');
}

std::string first_characters(std::string_view text, int count) {
  return std::string(count < 0 ? text
                               : text.substr(0, byte_offset(text, static_cast<size_t>(count))));
}

std::string format_value(Interpreter& vm, const Value& value, std::string_view text) {
  if (text.empty()) return str(vm, value);
  const Spec spec = parse_spec(text);
  Text out(budget_of(vm));
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') fail_type(spec.type, value);
    if (spec.sign != '-' || spec.alternate || spec.comma || spec.underscore) {
      fail("sign or grouping not allowed in string format specifier");
    }
    Spec padded = spec;
    if (spec.align == '=') {
      if (spec.fill != "0") fail("'=' alignment not allowed in string format specifier");
      padded.align = '<';
    }
    append_padded(out, "", first_characters(text_of(value), spec.precision), padded, '<');
  } else if (value.is(Kind::kFloat) || (value.is_integral() && one_of(spec.type, "eEfFgG%"))) {
    if (spec.type != '\0' && !one_of(spec.type, "eEfFgGn%")) fail_type(spec.type, value);
    format_real(out, value.as_real(), spec);
  } else if (value.is_integral()) {
    if (spec.type != '\0' && !one_of(spec.type, "bcdoxXn")) fail_type(spec.type, value);
    format_int(out, value.as_int(), spec);
  } else {
    fail("unsupported format string passed to ", type_name(value), ".__format__");
  }
  return out.take();
}

}  // namespace kvikk::jinja
