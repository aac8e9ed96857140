// Matrix products by format, rows and shape at every level that the machine has. Decode (up to 8
// rows) walks more than 1 GB of weights, so that no cache holds them, beside a plain read of the
// same bytes in four streams a thread: the limit to compare with. Prefill (64 and 512 rows) uses
// shapes of real models.
//
// bytes_per_second counts panel bytes, items_per_second multiplications and additions. Interleave
// for ratios that survive a busy machine:
//   bench_matmul_bench --benchmark_filter='Decode.*Q4K|Read' --benchmark_repetitions=5
//       --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace kvikk {
namespace {

constexpr size_t kWeightBytes = size_t{1200} << 20;
constexpr std::array<const char*, kPanelFormatCount> kNames = {
    "F32", "F16", "BF16", "Q8", "Q4", "Q4M", "Q5", "Q5M", "Q4K", "Q5K", "Q6K"};

struct Shape {
  const char* name;
  size_t outputs;
  size_t inputs;
};

constexpr Shape kShapes[] = {
    {"smollm2_up", 1536, 576},     {"smollm2_down", 576, 1536},  {"qwen1.5b_up", 8960, 1536},
    {"qwen1.5b_down", 1536, 8960}, {"smollm2_head", 49152, 576}, {"qwen1.5b_head", 151936, 1536},
};

Buffer allocate(size_t bytes) {
  Result<Buffer> buffer = Buffer::allocate(bytes);
  if (!buffer.ok()) std::abort();
  return std::move(buffer.value());
}

// One block of bytes serves as the weights of every format: each half-precision number in it is
// between 2^-8 and 2^-4, the other bits of codes vary.
Buffer& weights() {
  static Buffer buffer = [] {
    Buffer b = allocate(kWeightBytes + 4096);
    uint64_t state = 88172645463325252ULL;
    for (size_t i = 0; i < kWeightBytes / 8; ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      b.as<uint64_t>()[i] = (state & 0x0fff0fff0fff0fff) | 0x2000200020002000;
    }
    return b;
  }();
  return buffer;
}

struct Rows {
  Rows(size_t rows, size_t k)
      : x(allocate(rows * k * 4)),
        codes(allocate(rows * k)),
        scales(allocate(rows * k / 8)),
        sums(allocate(rows * k / 4)),
        weighted(allocate(rows * k / 8)) {
    for (size_t i = 0; i < rows * k; ++i) {
      x.as<float>()[i] = static_cast<float>(i % 17) - 8.0f;
      codes.as<int8_t>()[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
    }
    for (size_t i = 0; i < rows * k / kGroup; ++i) {
      scales.as<float>()[i] = 0.01f;
      weighted.as<float>()[i] = 0.1f;
      sums.as<int32_t>()[2 * i] = sums.as<int32_t>()[2 * i + 1] = 5;
    }
  }
  void put_into(MatmulArgs& args, size_t rows, size_t k) {
    args.rows = rows;
    args.k = k;
    args.x = x.as<float>();
    args.x_stride = k;
    args.quantized = {rows,
                      k / kGroup,
                      codes.as<int8_t>(),
                      scales.as<float>(),
                      sums.as<int32_t>(),
                      weighted.as<float>()};
  }
  Buffer x, codes, scales, sums, weighted;
};

struct Case {
  Kernels kernels;
  size_t format;
  size_t rows;
  size_t outputs;
  size_t k;
  int threads;
};

// Runs the product once per iteration, in tasks like those of the engine.
void run_product(benchmark::State& state, const Case& c) {
  const PanelLayout& layout = kPanelLayouts[c.format];
  const size_t panel_bytes = c.k / layout.unit_elements * layout.unit_bytes;
  const size_t panels = (c.outputs + kPanelRows - 1) / kPanelRows;
  const size_t task = c.rows > 16 ? 8 : std::max<size_t>(4, 65536 / panel_bytes / 4 * 4);
  const size_t tasks = (panels + task - 1) / task;
  const uint8_t* const bytes = weights().data();
  ThreadPool pool(c.threads);
  Rows rows(c.rows, c.k);
  Buffer y = allocate(c.rows * panels * kPanelRows * 4);
  Buffer scratch = allocate(matmul_scratch_bytes() * static_cast<size_t>(c.threads));
  for (auto _ : state) {
    pool.parallel_for(tasks, [&](size_t i, int thread) {
      MatmulArgs args;
      args.panels = bytes;
      args.panel_bytes = panel_bytes;
      args.panel_begin = i * task;
      args.panel_end = std::min(panels, args.panel_begin + task);
      rows.put_into(args, c.rows, c.k);
      args.y = y.as<float>();
      args.y_stride = panels * kPanelRows;
      args.scratch = scratch.data() + matmul_scratch_bytes() * static_cast<size_t>(thread);
      c.kernels.matmul[c.format](args);
    });
  }
  const auto iterations = static_cast<int64_t>(state.iterations());
  state.SetBytesProcessed(iterations * static_cast<int64_t>(panels * panel_bytes));
  state.SetItemsProcessed(iterations *
                          static_cast<int64_t>(2 * c.rows * panels * kPanelRows * c.k));
}

// Four streams a thread; what is read is the limit of every decode kernel.
void run_read(benchmark::State& state, int threads) {
  const uint8_t* const bytes = weights().data();
  ThreadPool pool(threads);
  const size_t share = kWeightBytes / static_cast<size_t>(threads) / 256 * 256;
  std::vector<uint64_t> found(static_cast<size_t>(threads) * 8);
  for (auto _ : state) {
    pool.run([&](int thread) {
      const uint8_t* begin = bytes + static_cast<size_t>(thread) * share;
      uint64_t any[8] = {};
      for (size_t i = 0; i < share / 4; i += 64) {
        for (size_t stream = 0; stream < 4; ++stream) {
          uint64_t line[8];
          __builtin_memcpy(line, begin + stream * (share / 4) + i, sizeof line);
          for (size_t j = 0; j < 8; ++j) any[j] |= line[j];
        }
      }
      for (size_t j = 0; j < 8; ++j) found[static_cast<size_t>(thread) * 8 + j] = any[j];
    });
    benchmark::DoNotOptimize(found.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(share * static_cast<size_t>(threads)));
}

std::vector<Kernels> levels() {
  const CpuFeatures machine = detect_cpu_features();
  CpuFeatures features;
  std::vector<Kernels> out;
  if ((features.avx2 = machine.avx2)) out.push_back(make_kernels(features));
  if ((features.avx512_vnni = machine.avx512_vnni)) out.push_back(make_kernels(features));
  if ((features.amx = machine.amx)) out.push_back(make_kernels(features));
  if (out.empty()) out.push_back(make_kernels(features));
  return out;
}

void add(const std::string& name, const Case& c) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [c](benchmark::State& state) { run_product(state, c); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

// As many outputs as the weights hold.
void add_decode(const Kernels& kernels, size_t format, int threads) {
  constexpr size_t kInputs = 1536;
  const PanelLayout& layout = kPanelLayouts[format];
  const size_t panel_bytes = kInputs / layout.unit_elements * layout.unit_bytes;
  const size_t outputs = kWeightBytes / panel_bytes / 8 * 8 * kPanelRows;
  for (const size_t rows : {1, 4, 8}) {
    add("Decode/" + std::string(kernels.level) + "/" + kNames[format] + "/rows" +
            std::to_string(rows) + "/threads" + std::to_string(threads),
        {kernels, format, rows, outputs, kInputs, threads});
  }
}

void add_prefill(const Kernels& kernels, size_t format, const Shape& shape) {
  if (shape.inputs % kPanelLayouts[format].unit_elements != 0) return;
  const bool head = shape.outputs > 16384;
  for (const size_t rows : {1, 8, 64, 512}) {
    if (head && rows > 8) continue;  // a prefill computes one row of logits
    add("Shape/" + std::string(kernels.level) + "/" + kNames[format] + "/" + shape.name + "/rows" +
            std::to_string(rows),
        {kernels, format, rows, shape.outputs, shape.inputs, 1});
  }
}

void add_all() {
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark(("Read/threads" + std::to_string(threads)).c_str(),
                                 [threads](benchmark::State& state) { run_read(state, threads); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (const Kernels& kernels : levels()) {
    for (size_t format = 0; format < kPanelFormatCount; ++format) {
      for (const int threads : {1, 2}) add_decode(kernels, format, threads);
      for (const Shape& shape : kShapes) add_prefill(kernels, format, shape);
    }
  }
}

}  // namespace
}  // namespace kvikk

int main(int argc, char** argv) {
  kvikk::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
