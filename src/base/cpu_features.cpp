#include "base/cpu_features.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

#include <cstdint>
#endif

namespace kvikk {

#if defined(__x86_64__)

namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

uint64_t read_xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

// Linux hands out the AMX tile registers per process, on request.
bool request_amx_permission() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureTileData = 18;
  return ::syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  const Registers leaf1 = cpuid(1, 0);
  constexpr int kOsxsave = 27, kAvx = 28, kFma = 12, kF16c = 29;
  if (!bit(leaf1.ecx, kOsxsave) || !bit(leaf1.ecx, kAvx)) return features;
  const uint64_t xcr0 = read_xcr0();
  constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;
  if ((xcr0 & kYmmState) != kYmmState) return features;
  const Registers leaf7 = cpuid(7, 0);
  const Registers leaf7_1 = cpuid(7, 1);
  features.avx2 = bit(leaf7.ebx, 5) && bit(leaf1.ecx, kFma) && bit(leaf1.ecx, kF16c);
  if (!features.avx2 || (xcr0 & kZmmState) != kZmmState) return features;
  const bool f = bit(leaf7.ebx, 16), dq = bit(leaf7.ebx, 17), bw = bit(leaf7.ebx, 30);
  const bool vl = bit(leaf7.ebx, 31), vbmi = bit(leaf7.ecx, 1), vnni = bit(leaf7.ecx, 11);
  const bool bf16 = bit(leaf7_1.eax, 5);
  features.avx512_vnni = f && dq && bw && vl && vbmi && vnni && bf16;
  const bool amx = bit(leaf7.edx, 22) && bit(leaf7.edx, 24) && bit(leaf7.edx, 25);
  features.amx =
      features.avx512_vnni && amx && (xcr0 & kTileState) == kTileState && request_amx_permission();
  return features;
}

#else

CpuFeatures detect_cpu_features() { return {}; }

#endif

Result<CpuFeatures> choose_features(const std::string& level) {
  const CpuFeatures here = detect_cpu_features();
  struct Level {
    const char* name;
    CpuFeatures features;
    bool present;
  };
  const Level levels[] = {
      {"scalar", {false, false, false}, true},
      {"avx2", {true, false, false}, here.avx2},
      {"avx512", {true, true, false}, here.avx512_vnni},
      {"amx", {true, true, true}, here.amx},
  };
  if (level.empty()) return here;
  std::string usable;
  for (const Level& candidate : levels) {
    if (candidate.present && level == candidate.name) return candidate.features;
    if (candidate.present) usable += (usable.empty() ? "" : ", ") + std::string(candidate.name);
  }
  return invalid_argument("cpu_level '" + level + "' is not available here; this machine has " +
                          usable);
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace kvikk
