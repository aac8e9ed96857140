#pragma once
// Failures inside the interpreter are one exception type, Error, thrown where Python would raise:
// nearly every operation on values can fail, and the code stays as short as what it describes.
// Template::parse() and render() turn it into a Status; none leaves the template files.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvikk::jinja {

struct Error {
  StatusCode code;
  std::string message;
  int line = 0;  // 0 until the statement or expression that failed fills it in
};
[[noreturn]] void throw_error(StatusCode code, int line, std::string message);

// The parts, strings or characters, one after the other.
inline std::string_view message_part(std::string_view text) { return text; }
inline std::string_view message_part(const char& c) { return {&c, 1}; }
std::string join_parts(std::initializer_list<std::string_view> parts);
template <class... Parts>
std::string concat(const Parts&... parts) {
  return join_parts({message_part(parts)...});
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw_error(StatusCode::kInvalidArgument, 0, concat(parts...));
}
template <class... Parts>
[[noreturn]] void fail_at(int line, const Parts&... parts) {
  throw_error(StatusCode::kInvalidArgument, line, concat(parts...));
}
template <class... Parts>
[[noreturn]] void fail_unsupported(const Parts&... parts) {
  throw_error(StatusCode::kUnsupported, 0, concat(parts...));
}
[[noreturn]] void fail_limit(std::string_view name, uint64_t limit);

}  // namespace kvikk::jinja
