#include "machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "base/cpu_features.h"

namespace kvikk {
namespace {

// The text after "key   : " of the first line of the file that begins with `key`.
std::string line_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

size_t memory_line(const std::string& key) {
  const std::string value = line_value("/proc/meminfo", key);  // "24689136 kB"
  return value.empty() ? 0 : static_cast<size_t>(std::strtoull(value.c_str(), nullptr, 10)) << 10;
}

const char* best_level(const CpuFeatures& features) {
  if (features.amx) return "amx";
  if (features.avx512_vnni) return "avx512";
  return features.avx2 ? "avx2" : "scalar";
}

}  // namespace

Machine describe_machine() {
  Machine machine;
  machine.cpu = line_value("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown";
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  machine.cores = known ? CPU_COUNT(&set) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  machine.cpu_level = best_level(detect_cpu_features());
  machine.memory_bytes = memory_line("MemTotal");
  machine.available_bytes = memory_line("MemAvailable");
  return machine;
}

size_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) << 10;
}

}  // namespace kvikk
