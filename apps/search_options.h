#pragma once
// Options that the verbs of `kvikk search` share.

#include <string>

#include "base/status.h"
#include "command.h"
#include "kvikk/search.h"

namespace kvikk {

inline constexpr int kPathBytesMax = 4096;

struct SearchRuntimeOptions {
  int32_t threads = 0;
  std::string cpu_level;

  template <class V>
  void visit(V&& v) {
    v(threads, "threads", 0, 1024, "threads that compute; 0 = one for each core");
    v(cpu_level, "cpu_level", 0, 32,
      "instruction set: scalar, avx2, avx512, amx; default the best");
  }
  IndexRuntime runtime() const { return {threads, cpu_level}; }
};

// An option without which the verb can do nothing.
inline Status require(const Command& command, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!command.given(name)) return invalid_argument("--" + std::string(name) + " is missing");
  }
  return ok_status();
}

}  // namespace kvikk
