#pragma once
// One option as the command line sees it. An options struct declares each of its fields once, in
// visit(); OptionBinder turns that into the flag, the key in a configuration file, the range check
// and the line in --help.

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "kvikk/options.h"
#include "text/numbers.h"

namespace kvikk {

struct OptionEntry {
  std::string name;         // in snake_case, as in a configuration file
  std::string placeholder;  // what stands for the value in --help; empty: a switch
  std::string help;
  std::string fallback;  // the default as text; empty: none is shown
  std::string range;     // for documentation
  bool common = true;    // shown by --help, not only by --help-all
  // Texts of a flag, one for each time that it was given. `where` begins the message of an error.
  std::function<Status(const std::vector<std::string>& texts, const std::string& where)> set_texts;
  std::function<Status(const nlohmann::json& value, const std::string& where)> set_json;

  std::string flag() const;  // "--top-k"
};

// What a user wrote, for a message: a long text is cut.
std::string short_text(const std::string& text);

// Calls itself a visitor: options.visit(OptionBinder(...)).
class OptionBinder {
 public:
  explicit OptionBinder(std::vector<OptionEntry>& entries) : entries_(entries) {}

  // Whole numbers and fractions.
  template <class T, class Bound,
            std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, int> = 0>
  void operator()(T& field, const char* name, Bound min, Bound max, const char* help) {
    constexpr bool kWhole = std::is_integral_v<T>;
    OptionEntry entry = make_entry(name, kWhole ? "N" : "X", help);
    entry.fallback = number_text(field);
    entry.range = number_text(min) + " to " + number_text(max);
    const std::string expected =
        std::string(kWhole ? "a whole number" : "a number") + " from " + entry.range;
    const auto check = [&field, min, max, expected](auto value, const std::string& text,
                                                    const std::string& where) {
      if (!value.has_value() || !(*value >= static_cast<T>(min)) ||
          !(*value <= static_cast<T>(max))) {
        return invalid_argument(where + " is " + shown(text) + "; it must be " + expected);
      }
      field = static_cast<T>(*value);
      return ok_status();
    };
    entry.set_texts = [check](const std::vector<std::string>& texts, const std::string& where) {
      return check(parse_number<T>(texts.back()), texts.back(), where);
    };
    entry.set_json = [check](const nlohmann::json& value, const std::string& where) {
      // A number is taken from its text, so that 1e99 or 99999999999999999999 meet the same check.
      const std::string text = value.dump();
      return check(value.is_number() ? parse_number<T>(text) : std::nullopt, text, where);
    };
    entries_.push_back(std::move(entry));
  }

  void operator()(bool& field, const char* name, bool, bool, const char* help) {
    OptionEntry entry = make_entry(name, "", help);
    entry.set_texts = [&field](const std::vector<std::string>&, const std::string&) {
      field = true;
      return ok_status();
    };
    entry.set_json = [&field](const nlohmann::json& value, const std::string& where) {
      if (!value.is_boolean()) {
        return invalid_argument(where + " is " + shown(value.dump()) +
                                "; it must be true or false");
      }
      field = value.get<bool>();
      return ok_status();
    };
    entries_.push_back(std::move(entry));
  }

  // min and max bound the bytes.
  void operator()(std::string& field, const char* name, int min, int max, const char* help);
  // Repeatable.
  void operator()(std::vector<std::string>& field, const char* name, int min, int max,
                  const char* help);
  void operator()(std::vector<LogitBias>& field, const char* name, double min, double max,
                  const char* help);
  // A comma-separated list; min and max bound each number.
  void operator()(std::vector<int32_t>& field, const char* name, int min, int max,
                  const char* help);

 private:
  static OptionEntry make_entry(const char* name, const char* placeholder, const char* help);
  // A value for a message.
  static std::string shown(const std::string& text);

  std::vector<OptionEntry>& entries_;
};

// The entry called `name` (snake_case), or nullptr.
const OptionEntry* find_option(const std::vector<OptionEntry>& entries, std::string_view name);

// Sets one option from text, as the flag would: for settings inside a value, "kv=f32,threads=1".
Status set_option(const std::vector<OptionEntry>& entries, std::string_view name,
                  const std::string& text);

}  // namespace kvikk
