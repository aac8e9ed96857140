#pragma once
// What this machine is, for figures that are worth nothing without it.

#include <cstddef>
#include <string>

namespace kvikk {

struct Machine {
  std::string cpu;             // "AMD EPYC 9R14"; "unknown" where the system does not say
  int cores = 0;               // that this process may use
  std::string cpu_level;       // the best that it has: "avx512"
  size_t memory_bytes = 0;     // all of it
  size_t available_bytes = 0;  // without swapping, now; 0: unknown
};

Machine describe_machine();

// The most memory that this process has held so far.
size_t peak_memory_bytes();

}  // namespace kvikk
