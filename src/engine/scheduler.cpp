#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace kvikk {

Scheduler::Scheduler(Compute& compute, Model& model, PagePool& pool, SchedulerLimits limits,
                     SamplerWorkspace workspace)
    : compute_(compute),
      model_(model),
      pool_(pool),
      limits_(limits),
      prefixes_(pool),
      reserved_(pool.shape().groups.size(), 0),
      workspace_(std::move(workspace)) {
  CHECK(limits_.sequences_max >= 1);
  CHECK(limits_.rows_max >= limits_.sequences_max);
}

size_t Scheduler::tokens_max(size_t prompt_tokens, size_t max_tokens) const {
  return max_tokens == 0 ? limits_.context : prompt_tokens + max_tokens;
}

size_t Scheduler::slabs_needed(size_t tokens, size_t group) const {
  // One more for the copy of a shared slab that the sequence writes to.
  return pool_.shape().sequence_slabs(group, tokens, limits_.rows_max) + 1;
}

Status Scheduler::check(size_t prompt_tokens, size_t max_tokens) const {
  const size_t context = limits_.context;
  if (prompt_tokens >= context) {
    return exhausted("the prompt has " + std::to_string(prompt_tokens) +
                     " tokens and the context " + std::to_string(context) +
                     ", one of which the answer needs at least");
  }
  if (max_tokens > context - prompt_tokens) {
    return exhausted("prompt (" + std::to_string(prompt_tokens) + " tokens) and max_tokens (" +
                     std::to_string(max_tokens) + ") together exceed the context of " +
                     std::to_string(context) + " tokens");
  }
  const size_t tokens = tokens_max(prompt_tokens, max_tokens);
  for (size_t g = 0; g < reserved_.size(); ++g) {
    if (slabs_needed(tokens, g) <= pool_.capacity(g)) continue;
    const size_t mib = pool_.shape().sequence_bytes(tokens) >> 20;
    return exhausted("a request of " + std::to_string(tokens) + " tokens needs " +
                     std::to_string(mib) + " MiB of key-value cache and the cache has " +
                     std::to_string((pool_.capacity(g) * pool_.shape().slab_bytes(g)) >> 20));
  }
  return ok_status();
}

Status Scheduler::admit(std::unique_ptr<Sequence> sequence) {
  TRY(check(sequence->prompt_tokens(), sequence->request.max_tokens));
  if (waiting_.size() >= limits_.queue_max) {
    return exhausted("the queue is full: " + std::to_string(limits_.queue_max) +
                     " requests are waiting");
  }
  sequence->tokens_max = tokens_max(sequence->prompt_tokens(), sequence->request.max_tokens);
  waiting_.push_back(std::move(sequence));
  return ok_status();
}

void Scheduler::cancel(RequestId id) {
  for (auto& sequence : waiting_) sequence->cancelled |= sequence->id == id;
  for (auto& sequence : running_) sequence->cancelled |= sequence->id == id;
}

bool Scheduler::reserve(const Sequence& sequence) {
  for (size_t g = 0; g < reserved_.size(); ++g) {
    if (reserved_[g] + slabs_needed(sequence.tokens_max, g) > pool_.capacity(g)) return false;
  }
  for (size_t g = 0; g < reserved_.size(); ++g)
    reserved_[g] += slabs_needed(sequence.tokens_max, g);
  return true;
}

void Scheduler::unreserve(const Sequence& sequence) {
  for (size_t g = 0; g < reserved_.size(); ++g)
    reserved_[g] -= slabs_needed(sequence.tokens_max, g);
}

double Scheduler::reserved_fraction() const {
  double most = 0.0;
  for (size_t g = 0; g < reserved_.size(); ++g) {
    most =
        std::max(most, static_cast<double>(reserved_[g]) / static_cast<double>(pool_.capacity(g)));
  }
  return most;
}

size_t Scheduler::leaked_slabs() const {
  CHECK(idle());
  size_t leaked = 0;
  for (size_t g = 0; g < reserved_.size(); ++g) {
    leaked += pool_.capacity(g) - pool_.free_slabs(g) - prefixes_.slabs(g);
  }
  return leaked;
}

// Moves waiting requests to running in order of arrival; the first that does not fit makes those
// behind it wait too, so a large one is not overtaken forever.
void Scheduler::start_waiting() {
  std::erase_if(waiting_, [&](std::unique_ptr<Sequence>& sequence) {
    if (!sequence->cancelled) return false;
    sequence->end(FinishReason::kCancelled);
    finish(*sequence);
    return true;
  });
  while (!waiting_.empty() && running_.size() < limits_.sequences_max) {
    Sequence& next = *waiting_.front();
    if (!reserve(next)) return;
    next.started = Sequence::Clock::now();
    next.tokens = next.request.tokens;
    // The last token of the prompt is always computed: its logits are the first answer.
    const size_t cached = prefixes_.attach(next.tokens, next.tokens.size() - 1, next.kv);
    next.completion.cached_tokens = cached;
    next.inserted_blocks = cached / kPageTokens;
    stats_.cached_tokens += cached;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::add_span(Sequence& sequence, size_t rows) {
  // Reservation guarantees the room; what only the prefix cache holds is taken back.
  for (size_t g = 0; g < reserved_.size(); ++g) {
    prefixes_.make_free(g, sequence.kv.slabs_to_reserve(g, rows));
  }
  const Status status = sequence.kv.reserve(rows);
  if (!status.ok()) {
    sequence.end(FinishReason::kFailed, status.message());
    return;
  }
  Span span;
  span.sequence = &sequence.kv;
  span.first_row = batch_.tokens.size();
  span.rows = rows;
  span.first_position = sequence.kv.length();
  batch_.tokens.insert(batch_.tokens.end(),
                       sequence.tokens.begin() + static_cast<long>(span.first_position),
                       sequence.tokens.begin() + static_cast<long>(span.first_position + rows));
  batch_.spans.push_back(span);
  batch_sequences_.push_back(&sequence);
  if (sequence.pending() == rows) {
    batch_.output_rows.push_back(static_cast<uint32_t>(batch_.tokens.size() - 1));
    output_sequences_.push_back(&sequence);
  }
}

// Decoding sequences first, one row each; prompts share what is left, in order of arrival.
void Scheduler::plan() {
  batch_.clear();
  batch_sequences_.clear();
  output_sequences_.clear();
  for (auto& sequence : running_) {
    if (sequence->pending() == 1) add_span(*sequence, 1);
  }
  for (auto& sequence : running_) {
    const size_t room = limits_.rows_max - batch_.tokens.size();
    if (room == 0) break;
    if (!sequence->finished && sequence->pending() > 1) {
      add_span(*sequence, std::min(sequence->pending(), room));
    }
  }
}

void Scheduler::sample_outputs() {
  const size_t outputs = output_sequences_.size();
  for (size_t first = 0; first < outputs; first += kLogitsRowsMax) {
    const size_t count = std::min(kLogitsRowsMax, outputs - first);
    size_t top = 1;  // what the rows look at; all logits when one of them may look at all
    for (size_t i = 0; i < count && top > 0; ++i) {
      const size_t needed = output_sequences_[first + i]->sampler.top_needed();
      top = needed == 0 ? 0 : std::max(top, needed);
    }
    const std::span<const float> logits = model_.logits(compute_, first, count, top);
    for (size_t i = 0; i < count; ++i) {
      Sequence& sequence = *output_sequences_[first + i];
      const auto row = logits.subspan(i * model_.logits_stride(), model_.config().vocabulary);
      const auto drawn =
          sequence.sampler.sample(row, sequence.tokens, sequence.tokens.size(), workspace_);
      if (drawn.ok()) {
        sequence.accept(*drawn);
      } else {
        sequence.end(FinishReason::kFailed, drawn.status().message());
      }
    }
  }
}

bool Scheduler::step() {
  start_waiting();
  for (auto& sequence : running_) {
    if (sequence->cancelled) sequence->end(FinishReason::kCancelled);
  }
  collect_finished();
  plan();
  if (!batch_.tokens.empty()) {
    model_.forward(compute_, batch_);
    ++stats_.steps;
    for (size_t i = 0; i < batch_.spans.size(); ++i) {
      Sequence& sequence = *batch_sequences_[i];
      (sequence.kv.length() < sequence.prompt_tokens() ? stats_.prefill_rows
                                                       : stats_.decode_rows) +=
          batch_.spans[i].rows;
      sequence.kv.advance(batch_.spans[i].rows);
      sequence.inserted_blocks =
          prefixes_.insert(sequence.tokens, sequence.inserted_blocks, sequence.kv);
      sequence.kv.drop_unseen();
    }
    sample_outputs();
  }
  collect_finished();
  return !idle();
}

void Scheduler::collect_finished() {
  std::erase_if(running_, [&](std::unique_ptr<Sequence>& sequence) {
    if (!sequence->finished) return false;
    unreserve(*sequence);
    finish(*sequence);
    return true;
  });
}

void Scheduler::finish(Sequence& sequence) {
  CHECK(sequence.finished);
  if (sequence.request.on_completion) sequence.request.on_completion(sequence.completion);
}

}  // namespace kvikk
