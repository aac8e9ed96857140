#include "bench_measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace kvikk {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWarmUpTokens = 64;
constexpr int kBandwidthPasses = 5;
constexpr int kPeakPasses = 5;
constexpr double kPeakSeconds = 0.005;  // of a pass
constexpr size_t kStreams = 4;          // one alone does not use all that a core can read

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums `count` words at each of kStreams places, `stride` words apart.
uint64_t read_streams(const uint64_t* words, size_t count, size_t stride) {
  uint64_t sums[kStreams] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t s = 0; s < kStreams; ++s) {
      for (size_t k = 0; k < 8; ++k) sums[s] += words[s * stride + i + k];
    }
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

double seconds_of(ThreadPool& pool, uint64_t (*peak)(uint64_t), uint64_t iterations,
                  uint64_t& operations) {
  std::atomic<uint64_t> sum{0};
  const auto start = Clock::now();
  pool.run([&](int) { sum += peak(iterations); });
  operations = sum.load();
  return seconds_since(start);
}

// 10^9 operations a second on all threads, the best of some passes: what disturbs only ever takes.
double best_peak_rate(ThreadPool& pool, uint64_t (*peak)(uint64_t iterations)) {
  uint64_t operations = 0;
  uint64_t iterations = 1024;
  // Twice, because a pass may have been held up by others.
  while (seconds_of(pool, peak, iterations, operations) < kPeakSeconds ||
         seconds_of(pool, peak, iterations, operations) < kPeakSeconds) {
    iterations *= 2;
  }
  double best = 0;
  for (int pass = 0; pass < kPeakPasses; ++pass) {
    const double seconds = seconds_of(pool, peak, iterations, operations);
    best = std::max(best, static_cast<double>(operations) / seconds / 1e9);
  }
  return best;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

Result<MachineLimits> MachineLimits::measure(const Kernels& kernels, ThreadPool& pool) {
  MachineLimits limits;
  TRY_ASSIGN(limits.probe_, Buffer::allocate(kProbeBytes));
  const size_t part = kProbeBytes / static_cast<size_t>(pool.size());
  pool.run([&](int thread) {  // each thread's part lies where that thread first wrote
    std::memset(limits.probe_.data() + static_cast<size_t>(thread) * part, 1, part);
  });
  limits.int8_gops_ = best_peak_rate(pool, kernels.peak_int8);
  limits.bf16_gflops_ = best_peak_rate(pool, kernels.peak_bf16);
  return limits;
}

double MachineLimits::measure_bandwidth(ThreadPool& pool) {
  const size_t threads = static_cast<size_t>(pool.size());
  const size_t stride = kProbeBytes / threads / kStreams / sizeof(uint64_t) / 8 * 8;
  const size_t part = stride * kStreams;  // words of one thread
  std::atomic<uint64_t> sum{0};           // so that the reads are not left out
  std::vector<double> rates;
  for (int pass = 0; pass < kBandwidthPasses; ++pass) {
    const auto start = Clock::now();
    pool.run([&](int thread) {
      const uint64_t* words = probe_.as<uint64_t>() + static_cast<size_t>(thread) * part;
      sum += read_streams(words, stride, stride);
    });
    rates.push_back(static_cast<double>(part * threads * sizeof(uint64_t)) / seconds_since(start) /
                    1e9);
  }
  return median_of(rates);
}

TokenId BenchSession::any_token() {
  return static_cast<TokenId>(random_() % engine_.config().vocabulary);
}

// One chunk after the other, as the scheduler does; the last row's logits are computed.
Status BenchSession::prefill(SequenceKv& kv, size_t tokens) {
  const size_t chunk = engine_.model().rows_max();
  for (size_t done = 0; done < tokens;) {
    TRY(go_on_());
    const size_t rows = std::min(chunk, tokens - done);
    done += rows;
    TRY(kv.reserve(rows));
    batch_.clear();
    for (size_t i = 0; i < rows; ++i) batch_.tokens.push_back(any_token());
    batch_.spans.push_back({&kv, 0, rows, kv.length()});
    if (done == tokens) batch_.output_rows.push_back(static_cast<uint32_t>(rows - 1));
    engine_.model().forward(engine_.compute(), batch_);
    kv.advance(rows);
    kv.drop_unseen();
  }
  engine_.model().logits(engine_.compute(), 0, 1);
  return ok_status();
}

// A token for each row; the most likely one comes next.
Status BenchSession::decode_step(std::vector<Row>& rows) {
  TRY(go_on_());
  batch_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    TRY(rows[i].kv.reserve(1));
    batch_.tokens.push_back(rows[i].next);
    batch_.spans.push_back({&rows[i].kv, i, 1, rows[i].kv.length()});
    batch_.output_rows.push_back(static_cast<uint32_t>(i));
  }
  Model& model = engine_.model();
  model.forward(engine_.compute(), batch_);
  for (size_t first = 0; first < rows.size(); first += kLogitsRowsMax) {
    const size_t count = std::min(kLogitsRowsMax, rows.size() - first);
    // As many logits as the default options look at.
    const auto top = static_cast<size_t>(SamplingOptions{}.top_k);
    const std::span<const float> logits = model.logits(engine_.compute(), first, count, top);
    for (size_t i = 0; i < count; ++i) {
      const auto row = logits.subspan(i * model.logits_stride(), model.config().vocabulary);
      rows[first + i].next =
          static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
    }
  }
  for (Row& row : rows) {
    row.kv.advance(1);
    row.kv.drop_unseen();
  }
  return ok_status();
}

// What the cache holds does not change how long it takes to read: only the first tokens are
// computed, the others are copies of their pages.
Status BenchSession::fill(size_t depth) {
  constexpr size_t kComputedTokens = 1024;
  const auto prefill_to = [&](size_t length) {
    return length > base_.length() ? prefill(base_, length - base_.length()) : ok_status();
  };
  const size_t whole = (std::max(kComputedTokens, base_.length()) + kPageTokens - 1) / kPageTokens;
  TRY(prefill_to(std::min(depth, whole * kPageTokens)));
  for (size_t page = 0; base_.length() + kPageTokens <= depth; ++page) TRY(repeat_page(page));
  return prefill_to(depth);
}

Status BenchSession::repeat_page(size_t page) {
  TRY(go_on_());
  PagePool& pool = engine_.pool();
  std::vector<SlabId> slabs;
  bool full = false;
  for (size_t g = 0; g < pool.shape().groups.size(); ++g) {
    SlabId source = base_.slab(g, page);
    if (source == kNoSlab) source = base_.slab(g, base_.slab_count(g) - 1);  // dropped: the newest
    slabs.push_back(pool.copy(g, source));
    full = full || slabs.back() == kNoSlab;
  }
  if (!full) base_.append_shared(slabs);
  for (size_t g = 0; g < slabs.size(); ++g) {
    if (slabs[g] != kNoSlab) pool.release(g, slabs[g]);  // the sequence has its own reference
  }
  if (full)
    return exhausted("the key-value cache has no room for " + std::to_string(page) + " pages");
  base_.drop_unseen();
  return ok_status();
}

Result<BenchResult> BenchSession::measure(BenchResult what, int32_t repeat,
                                          const std::function<Status()>& run) {
  std::vector<double> rates;
  what.bandwidth = limits_.measure_bandwidth(engine_.compute().pool());
  const Work before = engine_.compute().work();
  for (int32_t i = 0; i < repeat; ++i) {
    const auto start = Clock::now();
    TRY(run());
    rates.push_back(static_cast<double>(what.tokens) / seconds_since(start));
  }
  what.median = median_of(rates);
  what.min = *std::min_element(rates.begin(), rates.end());
  what.max = *std::max_element(rates.begin(), rates.end());
  set_limit(before, rates.size(), what);
  return what;
}

// The work of one run could be done in the time to read its bytes, or to do its operations,
// whichever takes longer.
void BenchSession::set_limit(const Work& before, size_t runs, BenchResult& what) const {
  const Work& now = engine_.compute().work();
  const auto per_run = [&](uint64_t Work::*field) {
    return static_cast<double>(now.*field - before.*field) / static_cast<double>(runs) / 1e9;
  };
  const double memory = per_run(&Work::bytes) / what.bandwidth;
  const double arithmetic = per_run(&Work::int8_operations) / limits_.int8_gops() +
                            per_run(&Work::float_operations) / limits_.bf16_gflops();
  what.limited_by_memory = memory >= arithmetic;
  what.limit = static_cast<double>(what.tokens) / std::max(memory, arithmetic);
}

Status BenchSession::measure_prefill(const BenchPlan& plan, size_t depth,
                                     const std::function<Status(BenchResult)>& take) {
  for (const int32_t tokens : plan.prefill) {
    if (tokens == 0) continue;
    BenchResult what;
    what.kind = "prefill";
    what.depth = depth;
    what.tokens = static_cast<size_t>(tokens);
    TRY_ASSIGN(BenchResult result, measure(what, plan.repeat, [&] {
                 SequenceKv kv = base_.fork();
                 return prefill(kv, what.tokens);
               }));
    TRY(take(std::move(result)));
  }
  return ok_status();
}

Status BenchSession::measure_rows(const char* kind, const BenchPlan& plan, size_t depth,
                                  size_t rows, const std::function<Status(BenchResult)>& take) {
  const auto steps = static_cast<size_t>(plan.decode);
  BenchResult what;
  what.kind = kind;
  what.depth = depth;
  what.rows = rows;
  what.tokens = rows * steps;
  TRY_ASSIGN(BenchResult result, measure(what, plan.repeat, [&] {
               std::vector<Row> sequences;
               for (size_t i = 0; i < rows; ++i) sequences.push_back({base_.fork(), any_token()});
               for (size_t i = 0; i < steps; ++i) TRY(decode_step(sequences));
               return ok_status();
             }));
  return take(std::move(result));
}

Status BenchSession::log_prefill(size_t tokens, PhaseLog& log) {
  SequenceKv kv = base_.fork();
  ThreadPool& pool = engine_.compute().pool();
  pool.set_log(&log);
  const Status status = prefill(kv, tokens);
  pool.set_log(nullptr);
  return status;
}

Status BenchSession::log_decode(size_t steps, PhaseLog& log) {
  std::vector<Row> rows;
  rows.push_back({base_.fork(), any_token()});
  ThreadPool& pool = engine_.compute().pool();
  TRY(decode_step(rows));  // brings the caches back to decoding
  pool.set_log(&log);
  Status status;
  for (size_t i = 0; i < steps && status.ok(); ++i) status = decode_step(rows);
  pool.set_log(nullptr);
  return status;
}

Status BenchSession::run(const BenchPlan& plan, const std::function<Status(BenchResult)>& take) {
  {
    SequenceKv warm = base_.fork();
    TRY(prefill(warm, kWarmUpTokens));
  }
  std::vector<int32_t> depths = plan.depth;
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  for (const int32_t depth : depths) {
    const auto at = static_cast<size_t>(depth);
    TRY(fill(at));
    TRY(measure_prefill(plan, at, take));
    if (plan.decode == 0) continue;
    TRY(measure_rows("decode", plan, at, 1, take));
    for (const int32_t rows : plan.rows) {
      if (rows > 0) TRY(measure_rows("rows", plan, at, static_cast<size_t>(rows), take));
    }
  }
  return ok_status();
}

}  // namespace kvikk
