// Compared with what the kernel says about the same processor in /proc/cpuinfo: it lists a feature
// only when it also saves the registers.
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace kvikk {
namespace {

#if defined(__x86_64__)
std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

TEST(CpuFeatures, AgreesWithTheKernel) {
  const std::set<std::string> flags = kernel_flags();
  ASSERT_FALSE(flags.empty());
  const auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (flags.count(name) == 0) return false;
    }
    return true;
  };
  const CpuFeatures features = detect_cpu_features();
  const bool avx2 = has({"avx2", "fma", "f16c"});
  const bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi",
                                   "avx512_vnni", "avx512_bf16"});
  EXPECT_EQ(features.avx2, avx2);
  EXPECT_EQ(features.avx512_vnni, avx512);
  EXPECT_TRUE(!features.amx || (avx512 && has({"amx_tile", "amx_int8", "amx_bf16"})));
}
#else
TEST(CpuFeatures, AnotherProcessorHasNone) {
  const CpuFeatures features = detect_cpu_features();
  EXPECT_FALSE(features.avx2 || features.avx512_vnni || features.amx);
}
#endif

}  // namespace
}  // namespace kvikk
