#pragma once
// The measurements of 'kvikk bench'. They drive the model's forward pass directly, with the same
// batches that the scheduler makes, so that nothing but the wanted work is timed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/phase_log.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "kv/sequence_kv.h"

namespace kvikk {

struct BenchPlan {
  std::vector<int32_t> prefill = {512};  // tokens
  int32_t decode = 64;                   // tokens
  std::vector<int32_t> depth = {0};      // tokens already in the cache
  std::vector<int32_t> rows = {1, 4, 8};
  int32_t repeat = 3;

  template <class V>
  void visit(V&& v) {
    v(prefill, "prefill", 0, 1 << 24, "tokens of a prompt; 0 = do not measure");
    v(decode, "decode", 0, 1 << 20, "tokens to generate; 0 = do not measure");
    v(depth, "depth", 0, 1 << 24, "tokens that are in the cache before");
    v(rows, "rows", 0, 1024, "sequences computed side by side; 0 = do not measure");
    v(repeat, "repeat", 1, 1000, "times; the median counts");
  }
};

struct BenchResult {
  std::string kind;  // "prefill", "decode", "rows"
  size_t depth = 0;
  size_t tokens = 0;  // of all rows
  size_t rows = 1;
  double median = 0, min = 0, max = 0;  // tokens per second
  double limit = 0;                     // tokens per second that the machine allows
  bool limited_by_memory = true;        // else by arithmetic
  double bandwidth = 0;                 // GB/s, measured just before
};

// What the machine's memory and arithmetic give at best, measured by the threads of a pool.
class MachineLimits {
 public:
  inline static constexpr size_t kProbeBytes = size_t{512} << 20;  // no cache holds that

  // Takes kProbeBytes of memory and keeps them. Measures the arithmetic once.
  static Result<MachineLimits> measure(const Kernels& kernels, ThreadPool& pool);

  // How fast memory is read now, in GB/s; a shared machine drifts. Some 0.1 s.
  double measure_bandwidth(ThreadPool& pool);
  double int8_gops() const { return int8_gops_; }  // 10^9 operations a second
  double bf16_gflops() const { return bf16_gflops_; }

 private:
  Buffer probe_;
  double int8_gops_ = 0;
  double bf16_gflops_ = 0;
};

// `values` is not empty.
double median_of(std::vector<double> values);

class BenchSession {
 public:
  // `go_on` is asked before each step.
  BenchSession(Engine& engine, MachineLimits& limits, std::function<Status()> go_on)
      : engine_(engine), limits_(limits), go_on_(std::move(go_on)), base_(engine.pool()) {}

  // Runs the plan, in ascending order of depth, and hands over each result. Errors: kExhausted when
  // the cache is too small, what `go_on` or `take` return.
  Status run(const BenchPlan& plan, const std::function<Status(BenchResult)>& take);

  // One prefill of `tokens`, or `steps` of decoding, after the deepest fill so far, into a log.
  Status log_prefill(size_t tokens, PhaseLog& log);
  Status log_decode(size_t steps, PhaseLog& log);

 private:
  struct Row {
    SequenceKv kv;
    TokenId next;
  };

  Status fill(size_t depth);
  // Appends a copy of a page of the base.
  Status repeat_page(size_t page);
  Status prefill(SequenceKv& kv, size_t tokens);
  Status decode_step(std::vector<Row>& rows);
  Result<BenchResult> measure(BenchResult what, int32_t repeat, const std::function<Status()>& run);
  Status measure_prefill(const BenchPlan& plan, size_t depth,
                         const std::function<Status(BenchResult)>& take);
  Status measure_rows(const char* kind, const BenchPlan& plan, size_t depth, size_t rows,
                      const std::function<Status(BenchResult)>& take);
  TokenId any_token();

  void set_limit(const Work& before, size_t runs, BenchResult& what) const;

  Engine& engine_;
  MachineLimits& limits_;
  std::function<Status()> go_on_;
  SequenceKv base_;  // what is in the cache before; measured sequences are forks of it
  Batch batch_;
  std::mt19937 random_{1};
};

}  // namespace kvikk
