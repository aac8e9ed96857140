// Numbers: Python's arithmetic over 128-bit integers and doubles, and numbers from and to text.
// Where Python's integers would grow beyond 128 bits there is an error instead.

#include <charconv>
#include <cmath>
#include <limits>

#include "text/template_ops.h"
#include "text/template_unicode.h"

namespace kvikk::jinja {
namespace {

constexpr Int kIntMax = static_cast<Int>(~static_cast<UnsignedInt>(0) >> 1);
constexpr Int kIntMin = -kIntMax - 1;

[[noreturn]] void fail_overflow() { fail_unsupported("an integer beyond 128 bits"); }
[[noreturn]] void fail_zero() { fail("division by zero"); }

Int add(Int a, Int b) {
  Int sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail_overflow();
  return sum;
}

Int subtract(Int a, Int b) {
  Int difference = 0;
  if (__builtin_sub_overflow(a, b, &difference)) fail_overflow();
  return difference;
}

Int multiply(Int a, Int b) {
  if (a == 0 || b == 0) return 0;
  if (a == kIntMin || b == kIntMin) {
    if (a == 1 || b == 1) return kIntMin;
    fail_overflow();
  }
  const Int size_a = a < 0 ? -a : a, size_b = b < 0 ? -b : b;
  if (size_a > kIntMax / size_b) fail_overflow();
  return a * b;
}

Int floor_divide(Int a, Int b) {
  if (b == 0) fail_zero();
  if (b == -1) return subtract(0, a);
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int modulo(Int a, Int b) {
  if (b == 0) fail_zero();
  if (b == -1) return 0;
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double modulo(double a, double b) {
  if (b == 0) fail_zero();
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  if ((rest < 0) != (b < 0)) rest += b;
  return rest;
}

double floor_divide(double a, double b) {
  if (b == 0) fail_zero();
  const double exact = (a - modulo(a, b)) / b;
  if (exact == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(exact);
  return exact - down > 0.5 ? down + 1 : down;
}

Value power(double a, double b) {
  if (a == 0 && b < 0) fail_zero();
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    fail_unsupported("a complex number");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    fail("numerical result too large");
  return Value::real(result);
}

Value power(Int base, Int exponent) {
  if (exponent < 0) return power(static_cast<double>(base), static_cast<double>(exponent));
  if (base == 1 || (base == 0 && exponent > 0)) return Value::integer(base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 128) fail_overflow();
  Int result = 1;
  for (Int i = 0; i < exponent; ++i) result = multiply(result, base);
  return Value::integer(result);
}

// A quotient of integers rounded once; exact operands make the division of doubles that.
double true_divide(Int a, Int b) {
  if (b == 0) fail_zero();
  constexpr Int kExact = static_cast<Int>(1) << 53;
  if (a > -kExact && a < kExact && b > -kExact && b < kExact) {
    return static_cast<double>(a) / static_cast<double>(b);
  }
  return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
}

Value calculate_integers(Operator op, Int a, Int b) {
  switch (op) {
    case Operator::kAdd:
      return Value::integer(add(a, b));
    case Operator::kSub:
      return Value::integer(subtract(a, b));
    case Operator::kMul:
      return Value::integer(multiply(a, b));
    case Operator::kDiv:
      return Value::real(true_divide(a, b));
    case Operator::kFloorDiv:
      return Value::integer(floor_divide(a, b));
    case Operator::kMod:
      return Value::integer(modulo(a, b));
    case Operator::kPow:
      return power(a, b);
  }
  return Value::none();
}

Value calculate_reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSub:
      return Value::real(a - b);
    case Operator::kMul:
      return Value::real(a * b);
    case Operator::kDiv:
      if (b == 0) fail_zero();
      return Value::real(a / b);
    case Operator::kFloorDiv:
      return Value::real(floor_divide(a, b));
    case Operator::kMod:
      return Value::real(modulo(a, b));
    case Operator::kPow:
      return power(a, b);
  }
  return Value::none();
}

Value join_strings(Interpreter& vm, const Value& a, const Value& b) {
  const bool markup = is_markup(a) || is_markup(b);
  Text text(budget_of(vm));
  for (const Value* part : {&a, &b}) {
    if (markup && !is_markup(*part)) {
      append_escaped(text, text_of(*part));
    } else {
      text.append(text_of(*part));
    }
  }
  return make_string(vm, text.take(), markup);
}

Value join_lists(Interpreter& vm, const Value& a, const Value& b) {
  const std::vector<Value>& left = a.as<List>().items;
  const std::vector<Value>& right = b.as<List>().items;
  budget_of(vm).check_items(left.size() + right.size());
  std::vector<Value> items;
  items.reserve(left.size() + right.size());
  items.insert(items.end(), left.begin(), left.end());
  items.insert(items.end(), right.begin(), right.end());
  return a.is(Kind::kList) ? make_list(vm, std::move(items)) : make_tuple(vm, std::move(items));
}

Value repeat(Interpreter& vm, const Value& sequence, const Value& count) {
  const auto exact = as_index(count);
  if (!exact) fail("cannot fit the number of repetitions into an index");
  const uint64_t times = *exact < 0 ? 0 : static_cast<uint64_t>(*exact);
  if (sequence.is_string()) {
    Text text(budget_of(vm));
    text.repeat(text_of(sequence), times);
    return make_string(vm, text.take(), is_markup(sequence));
  }
  const std::vector<Value>& source = sequence.as<List>().items;
  const size_t limit = budget_of(vm).limits().list_items_max;
  if (!source.empty() && times > limit / source.size()) budget_of(vm).check_items(limit + 1);
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && !source.empty(); ++i) {
    items.insert(items.end(), source.begin(), source.end());
  }
  return sequence.is(Kind::kList) ? make_list(vm, std::move(items))
                                  : make_tuple(vm, std::move(items));
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple);
}

std::string_view symbol(Operator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

// Digits of text as Python reads them: any script's, single underscores between them.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.bytes;
    if (c.value == '_') {
      const bool between = !plain.empty() &&
                           std::isxdigit(static_cast<unsigned char>(plain.back())) &&
                           i < text.size() && text[i] != '_' && text[i] != '.';
      if (!between) return std::nullopt;
      continue;
    }
    if (const int digit = decimal_value(c.value); digit >= 0) {
      plain.push_back(static_cast<char>('0' + digit));
    } else if (c.value < 0x80) {
      plain.push_back(static_cast<char>(c.value));
    } else {
      return std::nullopt;
    }
  }
  return plain;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

}  // namespace

Value calculate(Interpreter& vm, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return calculate_integers(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return calculate_reals(op, a.as_real(), b.as_real());
  if (op == Operator::kMod && a.is_string()) return format_percent(vm, a, b);
  if (a.is(Kind::kUndefined)) fail_undefined(vm, a);
  if (b.is(Kind::kUndefined)) fail_undefined(vm, b);
  if (op == Operator::kAdd && a.is_string() && b.is_string()) return join_strings(vm, a, b);
  if (op == Operator::kAdd && a.kind() == b.kind() && is_sequence(a)) return join_lists(vm, a, b);
  if (op == Operator::kMul && is_sequence(a) && b.is_integral()) return repeat(vm, a, b);
  if (op == Operator::kMul && is_sequence(b) && a.is_integral()) return repeat(vm, b, a);
  fail("unsupported operand types for ", symbol(op), ": '", type_name(a), "' and '", type_name(b),
       "'");
}

Value negate(Interpreter& vm, const Value& value) {
  if (value.is_integral()) return Value::integer(subtract(0, value.as_int()));
  if (value.is(Kind::kFloat)) return Value::real(-value.as_real());
  if (value.is(Kind::kUndefined)) fail_undefined(vm, value);
  fail("bad operand type for unary -: '", type_name(value), "'");
}

Value positive(Interpreter& vm, const Value& value) {
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) return value;
  if (value.is(Kind::kUndefined)) fail_undefined(vm, value);
  fail("bad operand type for unary +: '", type_name(value), "'");
}

std::optional<int64_t> as_index(const Value& value) {
  if (!value.is_integral()) return std::nullopt;
  const Int whole = value.as_int();
  if (whole < std::numeric_limits<int64_t>::min() || whole > std::numeric_limits<int64_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int64_t>(whole);
}

int64_t index_or_fail(const Value& value) {
  const auto index = as_index(value);
  if (!index) {
    fail("'", type_name(value), "' object cannot be interpreted as an index");
  }
  return *index;
}

std::string int_text(Int value) {
  if (value == 0) return "0";
  std::string digits;
  auto rest = value < 0 ? 0 - static_cast<UnsignedInt>(value) : static_cast<UnsignedInt>(value);
  for (; rest != 0; rest /= 10) digits.insert(digits.begin(), static_cast<char>('0' + rest % 10));
  return value < 0 ? concat("-", digits) : digits;
}

std::string fixed_text(double value, int digits) {
  constexpr size_t kWholeDigits = 312;  // of the largest double, with sign and point
  std::string buffer(kWholeDigits + static_cast<size_t>(digits), '\0');
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, digits);
  buffer.resize(static_cast<size_t>(result.ptr - buffer.data()));
  return buffer;
}

Value round_number(Interpreter& vm, const Value& value, Int digits) {
  if (value.is(Kind::kUndefined)) fail_undefined(vm, value);
  if (!value.is_number()) fail("type ", type_name(value), " cannot be rounded");
  if (value.is_integral()) {
    if (digits >= 0) return Value::integer(value.as_int());
    if (digits < -38) return Value::integer(0);
    Int unit = 1;
    for (Int i = 0; i > digits; --i) unit *= 10;
    const Int rest = modulo(value.as_int(), unit);
    const Int down = subtract(value.as_int(), rest);
    const bool up = rest * 2 > unit || (rest * 2 == unit && modulo(down / unit, 2) != 0);
    return Value::integer(up ? add(down, unit) : down);
  }
  const double real = value.as_real();
  if (!std::isfinite(real) || digits > 320) return value;
  if (digits >= 0) {
    return Value::real(parse_float(fixed_text(real, static_cast<int>(digits))).value_or(real));
  }
  if (digits < -308) return Value::real(std::copysign(0.0, real));
  // Rounded to whole units of 10^-digits: exact as long as the quotient is, which doubles below
  // 2^53 with a small unit are.
  double unit = 1;
  for (Int i = 0; i > digits; --i) unit *= 10;
  const double scaled = real / unit;
  return Value::real(std::nearbyint(scaled) * unit);
}

std::optional<Value> parse_int(std::string_view text, int base) {
  text = strip_left(strip_right(text));
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const char prefix = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const int prefixed = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    base = prefixed;
    text.remove_prefix(2);
    if (text[0] == '_') text.remove_prefix(1);
  }
  const bool any_zeros = base != 0 || text.find_first_not_of("0_") == text.npos;
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || text.empty() || text.back() == '_' || text[0] == '_') {
    return std::nullopt;
  }
  Int value = 0;
  bool after_underscore = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.bytes;
    if (c.value == '_') {
      if (after_underscore) return std::nullopt;
      after_underscore = true;
      continue;
    }
    after_underscore = false;
    const int decimal = decimal_value(c.value);
    const int digit = decimal >= 0     ? decimal
                      : c.value < 0x80 ? digit_value(static_cast<char>(c.value))
                                       : 99;
    if (digit >= base) return std::nullopt;
    value = add(multiply(value, base), digit);
  }
  if (!any_zeros && text[0] == '0') return std::nullopt;
  return Value::integer(negative ? -value : value);
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_left(strip_right(text));
  const auto plain = plain_digits(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  const std::string lower = to_lower(digits);
  if (lower == "inf" || lower == "infinity" || lower == "nan") {
    value = lower == "nan" ? std::numeric_limits<double>::quiet_NaN()
                           : std::numeric_limits<double>::infinity();
    return negative ? -value : value;
  }
  if (digits[0] != '.' && (digits[0] < '0' || digits[0] > '9')) return std::nullopt;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large or too small: what stands after the "e", else where the digits are, tells which.
    const size_t exponent = lower.find('e');
    const bool tiny =
        exponent != lower.npos ? lower[exponent + 1] == '-' : lower[0] == '.' || lower[0] == '0';
    value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return negative ? -value : value;
}

}  // namespace kvikk::jinja
