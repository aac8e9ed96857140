// The functions that every template has: range, dict, namespace, cycler, joiner, raise_exception
// and strftime_now.

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>

#include "text/template_builtins.h"

namespace kvikk::jinja {
namespace {

constexpr uint64_t kRangeItemsMax = 100'000;  // the sandbox's own limit

Value global_range(Interpreter& vm, Call& call) {
  expect_positional(call, 1, 3);
  int64_t bounds[3] = {0, 0, 1};
  if (call.args.size() == 1) {
    bounds[1] = index_or_fail(call.args[0]);
  } else {
    for (size_t i = 0; i < call.args.size(); ++i) bounds[i] = index_or_fail(call.args[i]);
  }
  if (bounds[2] == 0) fail("range() arg 3 must not be zero");
  Ref<Range> range(new Range(&vm.budget(), bounds[0], bounds[1], bounds[2]));
  if (range->length > kRangeItemsMax) {
    fail("range too big: more than ", std::to_string(kRangeItemsMax), " items");
  }
  return Value(Kind::kRange, range.get());
}

// dict(mapping or pairs, **keywords)
Value make_dict(Interpreter& vm, const Call& call) {
  if (call.args.size() > 1) fail("dict expected at most 1 argument");
  DictBuilder dict(vm);
  if (!call.args.empty()) {
    const Value& source = call.args[0];
    if (source.is(Kind::kDict)) {
      for (const Dict::Entry& entry : source.as<Dict>().entries) dict.set(entry.key, entry.value);
    } else {
      const Ref<Iterator> pairs = iterate(vm, source);
      for (Value pair; read(vm, *pairs, pair);) {
        const std::vector<Value> parts = to_vector(vm, pair);
        if (parts.size() != 2) fail("dict needs pairs, not ", std::to_string(parts.size()));
        dict.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : call.keywords) dict.set(make_string(vm, name), value);
  return dict.finish();
}

Value global_dict(Interpreter& vm, Call& call) { return make_dict(vm, call); }

Value global_namespace(Interpreter& vm, Call& call) {
  const Value content = make_dict(vm, call);
  Ref<Namespace> result(new Namespace(&vm.budget()));
  result->attributes = content.as<Dict>().entries;
  return Value(Kind::kNamespace, result.get());
}

Value global_cycler(Interpreter& vm, Call& call) {
  if (!call.keywords.empty() || call.args.empty()) fail("at least one item has to be provided");
  return Value(Kind::kCycler, new Cycler(&vm.budget(), make_tuple(vm, call.args)));
}

Value global_joiner(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"sep"}, 0);
  return Value(Kind::kJoiner,
               new Joiner(&vm.budget(), args[0].is_missing() ? make_string(vm, ", ") : args[0]));
}

Value global_raise_exception(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"message"}, 1);
  fail(str(vm, args[0]));
}

Value global_strftime_now(Interpreter& vm, Call& call) {
  const std::vector<Value> args = bind(call, {"format"}, 1);
  if (!args[0].is_string()) fail("strftime_now needs a str");
  return make_string(vm, format_time(vm, vm.now(), text_of(args[0])));
}

Value global_lipsum(Interpreter&, Call&) { fail_unsupported("lipsum is not supported"); }

constexpr BuiltinEntry kGlobals[] = {
    {"cycler", global_cycler},       {"dict", global_dict},
    {"joiner", global_joiner},       {"lipsum", global_lipsum},
    {"namespace", global_namespace}, {"raise_exception", global_raise_exception},
    {"range", global_range},         {"strftime_now", global_strftime_now},
};

struct Moment {
  std::tm calendar{};
  int microseconds = 0;
};

// "YYYY-MM-DDTHH:MM:SS[.ffffff]"
Moment parse_moment(const std::string& text) {
  Moment moment;
  const auto number = [&](size_t at, size_t digits) {
    int value = -1;
    if (text.size() < at + digits) return -1;
    const auto parsed = std::from_chars(text.data() + at, text.data() + at + digits, value);
    return parsed.ptr == text.data() + at + digits ? value : -1;
  };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  const bool shaped = text.size() >= 19 && text[4] == '-' && text[7] == '-' &&
                      (text[10] == 'T' || text[10] == ' ') && text[13] == ':' && text[16] == ':';
  const bool fits = year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour >= 0 &&
                    hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second < 60;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!shaped || !fits || !date.ok()) {
    fail("'now' is no time like 2026-01-02T03:04:05: '", text, "'");
  }
  if (text.size() > 20 && text[19] == '.') {
    std::string fraction = text.substr(20, 6);
    fraction.resize(6, '0');
    const auto parsed = std::from_chars(fraction.data(), fraction.data() + 6, moment.microseconds);
    if (parsed.ptr != fraction.data() + 6) fail("'now' has a bad fraction: '", text, "'");
  }
  const std::chrono::sys_days days{date};
  const std::chrono::sys_days new_year{date.year() / std::chrono::January / 1};
  moment.calendar.tm_year = year - 1900;
  moment.calendar.tm_mon = month - 1;
  moment.calendar.tm_mday = day;
  moment.calendar.tm_hour = hour;
  moment.calendar.tm_min = minute;
  moment.calendar.tm_sec = second;
  moment.calendar.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  moment.calendar.tm_yday = static_cast<int>((days - new_year).count());
  moment.calendar.tm_isdst = -1;
  return moment;
}

Moment local_moment() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  Moment moment;
  localtime_r(&seconds, &moment.calendar);
  const auto fraction = now - std::chrono::time_point_cast<std::chrono::seconds>(now);
  moment.microseconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(fraction).count());
  return moment;
}

}  // namespace

Value find_global(Interpreter& vm, std::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [&](const BuiltinEntry& entry) { return entry.name == name; });
  if (found == std::end(kGlobals)) return Value();
  return Value(Kind::kFunction, new Function(&vm.budget(), found->name.data(), found->builtin));
}

// Directive by directive, so that nothing in `format` reaches the C library unchecked. A local time
// without a zone, so %z and %Z are empty.
std::string format_time(Interpreter& vm, const std::string& now, std::string_view format) {
  const Moment moment = now.empty() ? local_moment() : parse_moment(now);
  Text out(budget_of(vm));
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.append(format[i]);
      continue;
    }
    std::string directive = "%";
    while (++i < format.size() &&
           std::string_view("-_0^#EO").find(format[i]) != std::string_view::npos) {
      if (directive.size() < 4) directive.push_back(format[i]);
    }
    if (i == format.size()) {
      out.append(directive);
      break;
    }
    const char kind = format[i];
    if (kind == 'f') {
      std::string digits = std::to_string(moment.microseconds);
      out.repeat("0", 6 - digits.size());
      out.append(digits);
    } else if (std::string_view("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%").find(kind) !=
               std::string_view::npos) {
      std::array<char, 128> buffer;
      directive.push_back(kind);
      out.append({buffer.data(), std::strftime(buffer.data(), buffer.size(), directive.c_str(),
                                               &moment.calendar)});
    } else if (kind != 'z' && kind != 'Z') {
      out.append(directive);
      out.append(kind);
    }
  }
  return out.take();
}

}  // namespace kvikk::jinja
