#pragma once
// Status and Result carry every failure that a user, a file or the network can cause. kvikk throws
// nothing.
//
// A message says what was wrong, where, and what would be right; it is meant to be shown as it is.

#include <optional>
#include <string>
#include <utility>

namespace kvikk {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller asked for something that cannot be right: exit code 2
  kNotFound,         // a file, model or key that is not there
  kDamaged,          // the bytes contradict themselves
  kUnsupported,      // well-formed, but nothing here can run it
  kExhausted,        // memory, disk, context or a named limit
  kCancelled,        // the user stopped it
  kIo,               // the operating system or the network refused
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Ends the program: the value of a Result was taken that has none, or one was made of a Status that
// is no failure. Both are bugs of the caller.
[[noreturn]] void result_misused(const Status& status);

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, `return value;`
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    if (status_.ok()) result_misused(status_);
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() {
    if (!ok()) result_misused(status_);
    return *value_;
  }
  const T& value() const {
    if (!ok()) result_misused(status_);
    return *value_;
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace kvikk
