#pragma once
// Decides what each step computes: one row for every sequence that decodes, then as much of the
// prompts as fits and as those that read answers can wait for. No decision of it can change an
// output, only when it comes.
//
// Who starts: lower priorities first, then the client that was given least, then in order of
// arrival. A request whose prompt begins like one that is being computed waits for its pages. Of
// the rows for prompts half go to the one that started first and half to the one with least left,
// so that a short request is not stuck behind a long one, nor a long one starved.
//
// Admission: a request starts only when the pages that it can need at most are set aside for it, so
// a running one is never stopped for lack of memory. Pages that only the prefix cache holds are
// taken back when somebody needs them.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/sequence.h"
#include "engine/speculator.h"
#include "engine/step_pacer.h"
#include "kv/prefix_tree.h"
#include "kv/token_evictor.h"
#include "models/model.h"

namespace kvikk {

struct SchedulerLimits {
  size_t rows_max = 512;        // rows of a step
  size_t sequences_max = 1;     // running at a time
  size_t context = 0;           // tokens of a sequence
  size_t queue_max = 4096;      // requests that wait
  double step_seconds_max = 0;  // while answers are written; 0: automatic (step_pacer.h)
};

struct SchedulerStats {
  uint64_t steps = 0;
  uint64_t prefill_rows = 0;
  uint64_t decode_rows = 0;
  uint64_t cached_tokens = 0;
};

class Scheduler {
 public:
  // speculator: null where nobody guesses.
  Scheduler(Compute& compute, Model& model, PagePool& pool, SchedulerLimits limits,
            SamplerWorkspace workspace, std::unique_ptr<Speculator> speculator = nullptr);

  // Whether a request can ever run. Errors: kExhausted with the figures.
  Status check(size_t prompt_tokens, size_t max_tokens) const;
  // Queues it. Errors: those of check(); kExhausted when the queue is full.
  Status admit(std::unique_ptr<Sequence> sequence);
  void cancel(RequestId id);
  bool step();
  bool idle() const { return waiting_.empty() && running_.empty(); }
  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size(); }
  // How much of the cache is set aside for what runs, 0 to 1; at 1 others wait.
  double reserved_fraction() const;
  // Slabs that neither a running sequence nor the prefix cache accounts for. Only when idle.
  size_t leaked_slabs() const;
  const SchedulerStats& stats() const { return stats_; }
  SpeculationStats speculation() const {
    return speculator_ == nullptr ? SpeculationStats{} : speculator_->stats();
  }
  PrefixTree& prefix_tree() { return prefixes_; }
  // Of caches that drop tokens once a prompt is computed; it must see the model's queries.
  void set_evictor(std::unique_ptr<TokenEvictor> evictor) { evictor_ = std::move(evictor); }
  TokenEvictor* evictor() const { return evictor_.get(); }

 private:
  // Of prompt and answer together, at most.
  size_t tokens_max(size_t prompt_tokens, size_t max_tokens) const;
  // Slabs of a group that a sequence of `tokens` can hold at most.
  size_t slabs_needed(size_t tokens, size_t group) const;
  bool reserve(const Sequence& sequence);
  void unreserve(const Sequence& sequence);
  void end_overdue();
  std::deque<std::unique_ptr<Sequence>>::iterator next_to_start();
  bool prefix_is_coming(const Sequence& sequence) const;
  void forget_clients();
  void start_waiting();
  void plan();
  bool only_decodes() const;
  void draft();
  void plan_prompts(size_t rows);
  void add_span(Sequence& sequence, size_t rows);
  void sample_outputs();
  void sample_row(Sequence& sequence, std::span<const float> logits);
  void keep_rows(Sequence& sequence, const Span& span);
  void evict(Sequence& sequence);
  void collect_finished();
  void finish(Sequence& sequence);

  Compute& compute_;
  Model& model_;
  PagePool& pool_;
  SchedulerLimits limits_;
  SchedulerStats stats_;
  PrefixTree prefixes_;
  std::vector<size_t> reserved_;  // [groups] slabs set aside
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::map<uint64_t, double> given_;  // rows, to each client that waits or runs
  StepPacer pacer_;
  size_t answer_rows_ = 0;  // of batch_
  Batch batch_;
  std::vector<Sequence*> batch_sequences_;   // [spans]
  std::vector<Sequence*> output_sequences_;  // [output rows]
  SamplerWorkspace workspace_;
  std::unique_ptr<Speculator> speculator_;
  std::unique_ptr<TokenEvictor> evictor_;
};

}  // namespace kvikk
