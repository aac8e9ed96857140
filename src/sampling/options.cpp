// The range check of SamplingOptions, driven by the one declaration of each option in visit().

#include "kvikk/options.h"

#include <charconv>
#include <string>
#include <type_traits>

#include "base/status.h"

namespace kvikk {
namespace {

// The shortest text that reads back as the same number, so that 0.95f is shown as 0.95.
template <class T>
std::string text_of(T value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

std::string quoted(const char* name) { return "sampling option '" + std::string(name) + "'"; }

class RangeCheck {
 public:
  explicit RangeCheck(size_t vocabulary) : vocabulary_(vocabulary) {}

  Status take_status() { return std::move(status_); }

  void operator()(bool, const char*, bool, bool, const char*) {}

  template <class T, class Bound>
  void operator()(const T& value, const char* name, Bound min, Bound max, const char*) {
    static_assert(std::is_arithmetic_v<T>);
    check_number(value, name, min, max, "");
  }

  template <class Bound>
  void operator()(const std::vector<LogitBias>& list, const char* name, Bound min, Bound max,
                  const char*) {
    check_count(list.size(), name, kLogitBiasEntriesMax);
    for (const LogitBias& entry : list) {
      if (entry.token < 0 || static_cast<size_t>(entry.token) >= vocabulary_) {
        fail(quoted(name) + " names token " + text_of(entry.token) +
             "; the model's tokens are 0 to " + text_of(vocabulary_ - 1));
        return;
      }
      check_number(entry.bias, name, min, max, " for token " + text_of(entry.token));
    }
  }

  template <class Bound>
  void operator()(const std::vector<std::string>& list, const char* name, Bound min, Bound max,
                  const char*) {
    check_count(list.size(), name, kDryBreakersMax);
    for (const std::string& entry : list) {
      if (entry.size() < static_cast<size_t>(min) || entry.size() > static_cast<size_t>(max)) {
        fail(quoted(name) + " has a text of " + text_of(entry.size()) + " bytes; each must have " +
             text_of(min) + " to " + text_of(max));
        return;
      }
    }
  }

 private:
  template <class T, class Bound>
  void check_number(T value, const char* name, Bound min, Bound max, const std::string& where) {
    if (static_cast<Bound>(value) >= min && static_cast<Bound>(value) <= max) return;  // NaN fails
    fail(quoted(name) + " is " + text_of(value) + where + "; it must be between " + text_of(min) +
         " and " + text_of(max));
  }

  void check_count(size_t count, const char* name, size_t max) {
    if (count <= max) return;
    fail(quoted(name) + " has " + text_of(count) + " entries; at most " + text_of(max) +
         " are allowed");
  }

  void fail(std::string message) {
    if (status_.ok()) status_ = invalid_argument(std::move(message));
  }

  size_t vocabulary_;
  Status status_;
};

}  // namespace

Status validate(const SamplingOptions& options, size_t vocabulary) {
  CHECK(vocabulary > 0);
  RangeCheck check(vocabulary);
  options.visit(check);
  return check.take_status();
}

}  // namespace kvikk
