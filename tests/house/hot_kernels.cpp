// Runs each hot kernel once, on zeros, for instruction_counts_test.py: it counts the instructions
// of every call of hot() under callgrind, in the order of this file. Prints the names in that
// order. usage: hot_kernels LEVEL (scalar or avx2: callgrind knows no AVX-512)

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/kernels.h"

namespace kvikk {
namespace {

constexpr size_t kInputs = 512;
constexpr size_t kPanels = 8;
constexpr size_t kHeadDim = 64;
constexpr size_t kAttendRows = 12;
constexpr size_t kPages = 4;
constexpr size_t kPageBytes = 2 * kv_part_bytes(KvFormat::kBF16, kHeadDim);

// Zeroed memory at a multiple of 64 bytes.
class Memory {
 public:
  explicit Memory(size_t bytes) : storage_(bytes + 64) {}
  template <class T>
  T* as() {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    return reinterpret_cast<T*>(storage_.data() + (64 - address % 64) % 64);
  }

 private:
  std::vector<uint8_t> storage_;
};

struct Product {
  Memory panels{kPanels * kInputs * 64 + 8192};
  Memory codes{kRowBlock * kInputs}, scales{kRowBlock * kInputs}, sums{kRowBlock * kInputs};
  Memory weighted{kRowBlock * kInputs}, x{kRowBlock * kInputs * 4};
  Memory y{kRowBlock * kPanels * kPanelRows * 4}, scratch{matmul_scratch_bytes()};

  MatmulArgs args(PanelFormat format, size_t rows) {
    const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(format)];
    MatmulArgs a;
    a.panels = panels.as<uint8_t>();
    a.panel_bytes = kInputs / layout.unit_elements * layout.unit_bytes;
    a.panel_end = kPanels;
    a.k = kInputs;
    a.rows = rows;
    a.quantized = {rows,
                   kInputs / kGroup,
                   codes.as<int8_t>(),
                   scales.as<float>(),
                   sums.as<int32_t>(),
                   weighted.as<float>()};
    a.x = x.as<float>();
    a.x_stride = kInputs;
    a.y = y.as<float>();
    a.y_stride = kPanels * kPanelRows;
    a.scratch = scratch.as<uint8_t>();
    return a;
  }
};

// What is counted: everything below this call.
__attribute__((noinline)) void hot(const std::function<void()>& kernel) {
  kernel();
  asm volatile("");  // so that the call is no jump, and its end is this function's
}

struct Named {
  std::string name;
  std::function<void()> kernel;
};

void run(const Kernels& k) {
  Product product;
  Memory page(kPages * kPageBytes), queries(kAttendRows * kHeadDim * 4);
  Memory max(64), sum(64), acc(kAttendRows * kHeadDim * 4);
  Memory scratch(attend_scratch_bytes(kAttendRows, kHeadDim));
  const uint8_t* pages[kPages];
  for (size_t p = 0; p < kPages; ++p) pages[p] = page.as<uint8_t>() + p * kPageBytes;
  const std::vector<uint32_t> begin(kAttendRows, 0), end(kAttendRows, kPages * kPageTokens);
  std::vector<float> row(kInputs, 1.0f), other(kInputs, 1.0f), table(kInputs, 0.5f);

  std::vector<Named> kernels;
  const std::pair<PanelFormat, const char*> formats[] = {
      {PanelFormat::kBF16, "bf16"}, {PanelFormat::kQ8, "q8"},   {PanelFormat::kQ4, "q4"},
      {PanelFormat::kQ4M, "q4m"},   {PanelFormat::kQ5, "q5"},   {PanelFormat::kQ4K, "q4k"},
      {PanelFormat::kQ5K, "q5k"},   {PanelFormat::kQ6K, "q6k"},
  };
  for (const auto& [format, name] : formats) {
    for (const size_t rows : {size_t{1}, size_t{4}, size_t{16}}) {
      const MatmulArgs args = product.args(format, rows);
      const auto matmul = k.matmul[static_cast<size_t>(format)];
      kernels.push_back({std::string("matmul ") + name + " " + std::to_string(rows) + " rows",
                         [args, matmul] { matmul(args); }});
    }
  }
  for (const size_t rows : {size_t{3}, kAttendRows}) {
    AttendArgs args;
    args.pages = pages;
    args.page_count = kPages;
    args.key_dim = kHeadDim;
    args.value_dim = kHeadDim;
    args.rows = rows;
    args.queries = queries.as<float>();
    args.visible_begin = begin.data();
    args.visible_end = end.data();
    args.max = max.as<float>();
    args.sum = sum.as<float>();
    args.acc = acc.as<float>();
    args.scratch = scratch.as<uint8_t>();
    const auto attend = k.attend[static_cast<size_t>(KvFormat::kBF16)];
    kernels.push_back(
        {"attend bf16 " + std::to_string(rows) + " rows", [args, attend] { attend(args); }});
  }
  const QuantizedRows quantized = product.args(PanelFormat::kQ8, 1).quantized;
  kernels.push_back({"quantize_row", [&] { k.quantize_row(row.data(), 0, quantized); }});
  kernels.push_back(
      {"rms_norm", [&] { k.rms_norm(row.data(), other.data(), kInputs, 1e-5f, row.data()); }});
  kernels.push_back(
      {"silu_multiply", [&] { k.silu_multiply(row.data(), other.data(), kInputs, row.data()); }});
  kernels.push_back({"rope", [&] { k.rope[0](row.data(), table.data(), table.data(), kHeadDim); }});
  for (const Named& named : kernels) {
    hot(named.kernel);
    std::printf("%s\n", named.name.c_str());
  }
}

}  // namespace
}  // namespace kvikk

int main(int count, char** arguments) {
  const std::string level = count == 2 ? arguments[1] : "";
  kvikk::CpuFeatures features;
  features.avx2 = level == "avx2";
  if (level != "scalar" && level != "avx2") return 2;
  kvikk::run(kvikk::make_kernels(features));
  return 0;
}
