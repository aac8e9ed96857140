#pragma once
// CHECK states a fact that only a bug in this program can break. It aborts and says which fact,
// where. Hot loops use DCHECK, which is compiled only in debug builds. One fact each.

#include <cstdio>
#include <cstdlib>

namespace kvikk {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kvikk: bug: CHECK(%s) failed at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace kvikk

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::kvikk::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
