#pragma once
// The range check of an options struct, driven by the one declaration of each option in its
// visit(): the first value out of range becomes the Status.

#include <charconv>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace kvikk {

class RangeCheck {
 public:
  // `kind` begins messages: "sampling option".
  explicit RangeCheck(const char* kind) : kind_(kind) {}

  Status take_status() { return std::move(status_); }

  void operator()(bool, const char*, bool, bool, const char*) {}

  template <class T, class Bound>
  void operator()(const T& value, const char* name, Bound min, Bound max, const char*) {
    static_assert(std::is_arithmetic_v<T>);
    check_number(value, name, min, max, "");
  }

  // min and max bound the bytes.
  template <class Bound>
  void operator()(const std::string& value, const char* name, Bound min, Bound max, const char*) {
    if (value.size() >= static_cast<size_t>(min) && value.size() <= static_cast<size_t>(max)) {
      return;
    }
    fail(quoted(name) + " has " + text_of(value.size()) + " bytes; it must have " + text_of(min) +
         " to " + text_of(max));
  }

 protected:
  // The shortest text that reads back as the same number, so that 0.95f is shown as 0.95.
  template <class T>
  static std::string text_of(T value) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
    return std::string(buffer, end);
  }

  std::string quoted(const char* name) const {
    return std::string(kind_) + " '" + std::string(name) + "'";
  }

  template <class T, class Bound>
  void check_number(T value, const char* name, Bound min, Bound max, const std::string& where) {
    if (static_cast<Bound>(value) >= min && static_cast<Bound>(value) <= max) return;  // NaN fails
    fail(quoted(name) + " is " + text_of(value) + where + "; it must be between " + text_of(min) +
         " and " + text_of(max));
  }

  void fail(std::string message) {
    if (status_.ok()) status_ = invalid_argument(std::move(message));
  }

 private:
  const char* kind_;
  Status status_;
};

}  // namespace kvikk
