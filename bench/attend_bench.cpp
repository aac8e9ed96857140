// Attention kernels alone, on the head shapes of the catalog models and of a 1B model: decode (one
// token's query heads over a long context, memory-bound) and prefill (a block of tokens against
// pages that stay in the caches, compute-bound). "read" streams the same bytes and does nothing
// else: decode should come close to it.
//
//   bench_attend_bench --benchmark_filter=decode --benchmark_repetitions=5
//   bench_attend_bench --benchmark_filter=coded     (one thread, caches of codes)

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_features.h"
#include "kernels/coded_page.h"
#include "kernels/kernels.h"

namespace kvikk {
namespace {

struct Shape {
  const char* name;
  size_t layers;
  size_t kv_heads;
  size_t group;  // query heads that share a KV head
  size_t head_dim;
};

constexpr Shape kShapes[] = {
    {"smollm2_135m", 30, 3, 3, 64}, {"qwen_0.5b", 24, 2, 7, 64}, {"qwen_1.5b", 28, 2, 6, 128},
    {"gemma_270m", 18, 1, 4, 256},  {"llama_1b", 16, 8, 4, 64},
};

constexpr size_t kChunkPages = 16;  // pages of one call, as the engine splits a context

// Pages of every layer and KV head, filled with small bfloat16 or float32 numbers.
class Pages {
 public:
  Pages(const Shape& shape, KvFormat format, size_t pages, size_t copies)
      : per_head_(pages), bytes_(kv_part_bytes(format, 2 * shape.head_dim)) {
    const size_t count = copies * pages;
    memory_ = std::move(Buffer::allocate(count * bytes_).value());
    const uint32_t pattern = format == KvFormat::kBF16 ? 0x3c00bc80u : 0xbc803c00u;
    for (size_t i = 0; i < count * bytes_ / 4; ++i) {
      memory_.as<uint32_t>()[i] = pattern ^ static_cast<uint32_t>(i * 2654435761u & 0x007f007fu);
    }
    for (size_t i = 0; i < count; ++i) pointers_.push_back(memory_.data() + i * bytes_);
  }
  const uint8_t* const* head(size_t index) const { return pointers_.data() + index * per_head_; }
  const uint8_t* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }

 private:
  size_t per_head_;
  size_t bytes_;
  Buffer memory_;
  std::vector<const uint8_t*> pointers_;
};

// What one thread needs to call an attention kernel.
struct Worker {
  Worker(size_t rows, size_t head_dim, size_t first, size_t end)
      : queries(rows * head_dim, 0.02f),
        begin(rows, 0),
        ends(rows, static_cast<uint32_t>(end)),
        max(rows),
        sum(rows),
        acc(rows * head_dim),
        scratch(std::move(Buffer::allocate(attend_scratch_bytes(rows, head_dim)).value())) {
    for (size_t i = 0; i < queries.size(); ++i) queries[i] += 0.001f * static_cast<float>(i % 97);
    args.first_position = first;
    args.key_dim = head_dim;
    args.value_dim = head_dim;
    args.rows = rows;
    args.queries = queries.data();
    args.visible_begin = begin.data();
    args.visible_end = ends.data();
    args.max = max.data();
    args.sum = sum.data();
    args.acc = acc.data();
    args.scratch = scratch.data();
  }
  std::vector<float> queries;
  std::vector<uint32_t> begin, ends;
  std::vector<float> max, sum, acc;
  Buffer scratch;
  AttendArgs args;
};

// One token's attention over all layers, KV heads dealt out in chunks of pages to the threads.
void decode(benchmark::State& state, const Kernels& kernels, const Shape& shape, KvFormat format,
            size_t context, size_t threads) {
  const size_t pages = context / kPageTokens;
  const size_t heads = shape.layers * shape.kv_heads;
  const Pages cache(shape, format, pages, heads);
  const size_t chunks = (pages + kChunkPages - 1) / kChunkPages;
  const auto work = [&](size_t thread) {
    Worker worker(shape.group, shape.head_dim, 0, context);
    for (size_t i = thread; i < heads * chunks; i += threads) {
      const size_t first = i % chunks * kChunkPages;
      worker.args.pages = cache.head(i / chunks) + first;
      worker.args.page_count = pages - first < kChunkPages ? pages - first : kChunkPages;
      worker.args.first_position = first * kPageTokens;
      kernels.attend[static_cast<size_t>(format)](worker.args);
      benchmark::DoNotOptimize(worker.acc[0]);
    }
  };
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& other : others) other.join();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * cache.size()));
}

// A head's past as codes of `bits`, with a position term of `fast` and `slow` pairs.
struct Codes {
  Codes(const Shape& shape, size_t bits, size_t fast, size_t slow, size_t chunk_pages)
      : table(fast + slow),
        angles(2 * table * kPageTokens, 0.5f),
        powers(kPositionPowers * table, 0.0f),
        turn(2 * table, 0.7f),
        turns(chunk_pages, turn.data()),
        terms(shape.group * (1 + 2 * table), 0.1f),
        bytes(shape.group * 2 * shape.head_dim, 3),
        sums(shape.group * 2),
        scales(shape.group, 0.001f) {
    for (CodedLayout* layout : {&keys, &values}) {
      layout->segments[0] = {static_cast<uint32_t>(bits), static_cast<uint32_t>(shape.head_dim)};
      for (size_t i = 0; i < 16; ++i) {
        layout->level_bytes[bits % 8][i] = static_cast<int8_t>(i * 15);
      }
      layout->byte_scale[bits] = 0.01f;
    }
    for (size_t i = 0; i < table; ++i) pairs.push_back(static_cast<uint32_t>(i));
    for (size_t r = 0; r < shape.group; ++r) {
      sums[2 * r] = sums[2 * r + 1] = static_cast<int32_t>(3 * shape.head_dim);
    }
    position = {fast, slow, pairs.data(), table, angles.data(), powers.data()};
  }
  size_t page_bytes() const { return coded_key_bytes(keys) + coded_value_bytes(values); }

  size_t table;  // pairs
  CodedLayout keys, values;
  std::vector<uint32_t> pairs;
  std::vector<float> angles, powers, turn;
  std::vector<const float*> turns;
  std::vector<float> terms;
  std::vector<int8_t> bytes;
  std::vector<int32_t> sums;
  std::vector<float> scales;
  PositionTerm position;
};

// As decode, one thread, over coded pages.
void decode_codes(benchmark::State& state, const Kernels& kernels, const Shape& shape, size_t bits,
                  size_t context, size_t fast, size_t slow) {
  const size_t pages = context / kPageTokens;
  const size_t heads = shape.layers * shape.kv_heads;
  const Codes codes(shape, bits, fast, slow, kChunkPages);
  auto memory = Buffer::allocate(heads * pages * codes.page_bytes());
  for (size_t i = 0; i < memory->size() / 4; ++i) {
    memory->as<uint32_t>()[i] = static_cast<uint32_t>(i * 2654435761u) & 0x3bff3bffu;
  }
  Worker worker(shape.group, shape.head_dim, 0, context);
  CodedAttendArgs args{static_cast<const AttendRows&>(worker.args)};
  args.keys = &codes.keys;
  args.values = &codes.values;
  args.value_offset = coded_key_bytes(codes.keys);
  args.query_bytes = codes.bytes.data();
  args.two_halves = bits == 8;
  args.query_sums = codes.sums.data();
  args.query_scales = codes.scales.data();
  if (fast + slow > 0) {
    args.position = &codes.position;
    args.terms = codes.terms.data();
    args.terms_stride = 1 + 2 * codes.table;
    args.terms_pairs = codes.table;
    args.turns = codes.turns.data();
  }
  std::vector<const uint8_t*> pointers(kChunkPages);
  args.pages = pointers.data();
  for (auto _ : state) {
    for (size_t head = 0; head < heads; ++head) {
      for (size_t first = 0; first < pages; first += kChunkPages) {
        args.page_count = std::min(kChunkPages, pages - first);
        for (size_t i = 0; i < args.page_count; ++i) {
          pointers[i] = memory->data() + (head * pages + first + i) * codes.page_bytes();
        }
        args.first_position = first * kPageTokens;
        kernels.attend_coded(args);
        benchmark::DoNotOptimize(worker.acc[0]);
      }
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * memory->size()));
}

// Reads the same bytes as decode, four streams a thread.
void read(benchmark::State& state, const Shape& shape, KvFormat format, size_t context,
          size_t threads) {
  const Pages cache(shape, format, context / kPageTokens, shape.layers * shape.kv_heads);
  const auto work = [&](size_t thread) {
    const size_t quarter = cache.size() / threads / 4 / 64 * 64;
    const uint8_t* p = cache.data() + thread * (cache.size() / threads);
    uint64_t sum = 0;
    for (size_t i = 0; i < quarter; i += 64) {
      for (size_t stream = 0; stream < 4; ++stream) {
        uint64_t line[8];
        std::memcpy(line, p + stream * quarter + i, sizeof(line));
        for (const uint64_t word : line) sum ^= word;
        __builtin_prefetch(p + stream * quarter + i + 1024);
      }
    }
    benchmark::DoNotOptimize(sum);
  };
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& other : others) other.join();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * cache.size()));
}

// 64 tokens of prefill on one KV head against one chunk of pages, one thread.
void prefill(benchmark::State& state, const Kernels& kernels, const Shape& shape, KvFormat format) {
  const Pages cache(shape, format, kChunkPages, 1);
  Worker worker(64 * shape.group, shape.head_dim, 0, kChunkPages * kPageTokens);
  worker.args.pages = cache.head(0);
  worker.args.page_count = kChunkPages;
  for (auto _ : state) {
    kernels.attend[static_cast<size_t>(format)](worker.args);
    benchmark::DoNotOptimize(worker.acc[0]);
  }
  const double operations = 4.0 * static_cast<double>(worker.args.rows) *
                            static_cast<double>(kChunkPages * kPageTokens * shape.head_dim);
  state.counters["FLOP/s"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
}

// All layers of a token, one thread, in processor time: a busy machine disturbs it least.
void register_codes(const Kernels& level, const Shape& shape) {
  const std::string head = std::string("coded/") + level.level + "/" + shape.name + "/16k/";
  const auto add = [&](const std::string& name, auto run) {
    benchmark::RegisterBenchmark((head + name).c_str(), run)->Unit(benchmark::kMillisecond);
  };
  add("bf16",
      [=](benchmark::State& state) { decode(state, level, shape, KvFormat::kBF16, 16384, 1); });
  for (const size_t bits : {size_t{8}, size_t{4}, size_t{3}, size_t{2}}) {
    add(std::to_string(bits) + "_bits",
        [=](benchmark::State& state) { decode_codes(state, level, shape, bits, 16384, 0, 0); });
  }
  // About what keys with a bias need.
  const size_t pairs = shape.head_dim / 2;
  add("4_bits_position", [=](benchmark::State& state) {
    decode_codes(state, level, shape, 4, 16384, pairs / 4, pairs / 2);
  });
}

void register_all() {
  const CpuFeatures machine = detect_cpu_features();
  CpuFeatures avx2_only;
  avx2_only.avx2 = machine.avx2;
  std::vector<Kernels> levels;
  if (machine.avx512_vnni) levels.push_back(make_kernels(machine));
  levels.push_back(make_kernels(avx2_only));
  const char* format_names[] = {"bf16", "f32"};
  for (const Shape& shape : kShapes) {
    const std::string shape_name = std::string("/") + shape.name;
    for (const size_t threads : {1u, 2u}) {
      const std::string tail = shape_name + "/16k/threads:" + std::to_string(threads);
      benchmark::RegisterBenchmark(
          ("read" + tail).c_str(),
          [=](benchmark::State& state) { read(state, shape, KvFormat::kBF16, 16384, threads); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
      for (const Kernels& level : levels) {
        const std::string name = std::string("decode/") + level.level + tail;
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) {
                                       decode(state, level, shape, KvFormat::kBF16, 16384, threads);
                                     })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
    for (const Kernels& level : levels) {
      if (level.attend_coded != nullptr) register_codes(level, shape);
      for (const KvFormat format : {KvFormat::kBF16, KvFormat::kF32}) {
        const std::string name = std::string("prefill/") + level.level + shape_name + "/" +
                                 format_names[static_cast<size_t>(format)];
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          prefill(state, level, shape, format);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace kvikk

int main(int argc, char** argv) {
  kvikk::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
