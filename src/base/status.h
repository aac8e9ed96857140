#pragma once
// How the code of this program makes and passes on a Status (kvikk/status.h). No exception crosses
// a layer; a broken promise inside the program is a CHECK instead (check.h).

#include <string>
#include <utility>

#include "base/check.h"
#include "kvikk/status.h"

namespace kvikk {

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
