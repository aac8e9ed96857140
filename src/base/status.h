#pragma once
// Status and Result carry every failure that a user, a file or the network can cause. No exception
// crosses a layer; a broken promise inside the program is a CHECK instead (check.h).
//
// A message says what was wrong, where, and what would be right; it is shown to the user as it is.

#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

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

inline Status ok_status() { return Status(); }
inline Status invalid_argument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status damaged(std::string m) { return {StatusCode::kDamaged, std::move(m)}; }
inline Status unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status exhausted(std::string m) { return {StatusCode::kExhausted, std::move(m)}; }
inline Status cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status io_error(std::string m) { return {StatusCode::kIo, std::move(m)}; }

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, `return value;`
  Result(Status status) : status_(std::move(status)) { CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() {
    CHECK(ok());
    return *value_;
  }
  const T& value() const {
    CHECK(ok());
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

#define KVIKK_CONCAT_(a, b) a##b
#define KVIKK_CONCAT(a, b) KVIKK_CONCAT_(a, b)

// TRY(expr): returns expr's Status from this function when it failed.
#define TRY(expr)                              \
  do {                                         \
    ::kvikk::Status try_status_ = (expr);      \
    if (!try_status_.ok()) return try_status_; \
  } while (false)

// TRY_ASSIGN(auto x, expr): x = the value of expr, or returns its Status.
#define TRY_ASSIGN(target, expr) TRY_ASSIGN_(target, expr, KVIKK_CONCAT(try_result_, __LINE__))
#define TRY_ASSIGN_(target, expr, name) \
  auto name = (expr);                   \
  if (!name.ok()) return name.status(); \
  target = std::move(name.value())
