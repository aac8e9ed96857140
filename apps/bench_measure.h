#pragma once
// The measurements of 'kvikk bench'. They drive the model's forward pass directly, with the same
// batches that the scheduler makes, so that nothing but the wanted work is timed.

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
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
};

class BenchSession {
 public:
  // `go_on` is asked before each step.
  BenchSession(Engine& engine, std::function<Status()> go_on)
      : engine_(engine), go_on_(std::move(go_on)), base_(engine.pool()) {}

  // Runs the plan, in ascending order of depth, and hands over each result. Errors: kExhausted when
  // the cache is too small, what `go_on` or `take` return.
  Status run(const BenchPlan& plan, const std::function<Status(BenchResult)>& take);

 private:
  struct Row {
    SequenceKv kv;
    TokenId next;
  };

  Status fill(size_t depth);
  Status prefill(SequenceKv& kv, size_t tokens);
  Status decode_step(std::vector<Row>& rows);
  Result<BenchResult> measure(BenchResult what, int32_t repeat, const std::function<Status()>& run);
  Status measure_prefill(const BenchPlan& plan, size_t depth,
                         const std::function<Status(BenchResult)>& take);
  Status measure_rows(const char* kind, const BenchPlan& plan, size_t depth, size_t rows,
                      const std::function<Status(BenchResult)>& take);
  TokenId any_token();

  Engine& engine_;
  std::function<Status()> go_on_;
  SequenceKv base_;  // what is in the cache before; measured sequences are forks of it
  Batch batch_;
  std::mt19937 random_{1};
};

// How fast the pool's threads read memory that no cache holds: the limit of decoding.
Result<double> measure_bandwidth_gb_per_second(ThreadPool& pool, size_t bytes);

}  // namespace kvikk
