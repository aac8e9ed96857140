#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace kvikk {
namespace {

// Prompts that are compared in a step with those being computed, to find the next to start.
constexpr size_t kLooksMax = 32;
// Of the disk's part of a prompt in a step, while others wait for their next token: some 10 ms.
constexpr uint64_t kRestoreBytesMax = uint64_t{32} << 20;

}  // namespace

Scheduler::Scheduler(Compute& compute, Model& model, PagePool& pool, SchedulerLimits limits,
                     SamplerWorkspace workspace, std::unique_ptr<Speculator> speculator)
    : compute_(compute),
      model_(model),
      pool_(pool),
      limits_(limits),
      prefixes_(pool),
      reserved_(pool.shape().groups.size(), 0),
      pacer_(limits.step_seconds_max),
      workspace_(std::move(workspace)),
      speculator_(std::move(speculator)) {
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
  if (given_.count(sequence->request.client) == 0) {
    double least = 0.0;  // of the others: who was away has nothing saved up
    for (const auto& [client, rows] : given_) least = least == 0.0 ? rows : std::min(least, rows);
    given_[sequence->request.client] = least;
  }
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

// Ends what was cancelled or took too long, waiting or running.
void Scheduler::end_overdue() {
  const auto now = Sequence::Clock::now();
  const auto overdue = [&](Sequence& sequence) {
    const auto deadline = sequence.request.deadline;
    if (sequence.cancelled) {
      sequence.end(FinishReason::kCancelled);
    } else if (deadline != Sequence::Clock::time_point{} && now >= deadline) {
      sequence.end(FinishReason::kDeadline);
    }
    return sequence.finished;
  };
  for (auto& sequence : running_) overdue(*sequence);
  std::erase_if(waiting_, [&](std::unique_ptr<Sequence>& sequence) {
    if (!overdue(*sequence)) return false;
    finish(*sequence);
    return true;
  });
}

// Whether a prompt that is being computed begins like this one beyond what is computed of it.
bool Scheduler::prefix_is_coming(const Sequence& sequence) const {
  const std::vector<TokenId>& mine = sequence.request.tokens;
  for (const auto& other : running_) {
    if (other->request.client != sequence.request.client || other->pending() <= 1) continue;
    const std::vector<TokenId>& theirs = other->request.tokens;
    // The last token of a prompt is always computed.
    const size_t most = std::min(mine.size() - 1, theirs.size());
    const auto differs =
        std::mismatch(mine.begin(), mine.begin() + static_cast<long>(most), theirs.begin());
    const auto common = static_cast<size_t>(differs.first - mine.begin());
    if (common / kPageTokens > other->kv.length() / kPageTokens) return true;
  }
  return false;
}

std::deque<std::unique_ptr<Sequence>>::iterator Scheduler::next_to_start() {
  const auto before = [&](const Request& a, const Request& b) {
    if (a.priority != b.priority) return a.priority < b.priority;
    return given_[a.client] < given_[b.client];
  };
  auto best = waiting_.end();
  size_t looks = 0;
  for (auto it = waiting_.begin(); it != waiting_.end() && looks < kLooksMax; ++it) {
    if (best != waiting_.end() && !before((*it)->request, (*best)->request)) continue;
    ++looks;
    if (!prefix_is_coming(**it)) best = it;
  }
  return best;
}

// Moves waiting requests to running. The first that does not fit makes those behind it wait too, so
// a large one is not overtaken forever.
void Scheduler::start_waiting() {
  while (!waiting_.empty() && running_.size() < limits_.sequences_max) {
    const auto chosen = next_to_start();
    if (chosen == waiting_.end()) return;
    Sequence& next = **chosen;
    if (!reserve(next)) return;
    const uint64_t bytes_max = running_.empty() ? UINT64_MAX : kRestoreBytesMax;
    if (prefixes_.restore(next.request.tokens, next.request.tokens.size() - 1, next.request.client,
                          bytes_max)) {
      unreserve(next);
      return;
    }
    next.started = Sequence::Clock::now();
    next.tokens = next.request.tokens;
    // The last token of the prompt is always computed: its logits are the first answer. Eviction
    // looks at some more.
    const size_t computed =
        std::min(next.tokens.size(), evictor_ == nullptr ? size_t{1} : TokenEvictor::kWindow);
    const size_t most = next.tokens.size() - computed;
    prefixes_.attach(next.tokens, most, next.kv, next.request.client);
    const size_t cached = prefixes_.extend(next.tokens, most, next.kv, next.request.client);
    next.completion.cached_tokens = cached;
    if (speculator_ != nullptr && next.request.speculate) speculator_->begin(next);
    next.inserted_blocks = cached / kPageTokens;
    stats_.cached_tokens += cached;
    running_.push_back(std::move(*chosen));
    waiting_.erase(chosen);
  }
}

// `rows` of the sequence's tokens, and its draft after them.
void Scheduler::add_span(Sequence& sequence, size_t rows) {
  const std::vector<TokenId>& draft = sequence.draft.tokens;
  const bool ends = sequence.pending() == rows;
  // Reservation guarantees the room; what only the prefix cache holds is taken back.
  for (size_t g = 0; g < reserved_.size(); ++g) {
    prefixes_.make_free(g, sequence.kv.slabs_to_reserve(g, rows + draft.size()));
  }
  const Status status = sequence.kv.reserve(rows + draft.size());
  if (!status.ok()) {
    sequence.end(FinishReason::kFailed, status.message());
    return;
  }
  Span span;
  span.sequence = &sequence.kv;
  span.first_row = batch_.tokens.size();
  span.rows = rows + draft.size();
  span.first_position = sequence.kv.length();
  batch_.tokens.insert(batch_.tokens.end(),
                       sequence.tokens.begin() + static_cast<long>(span.first_position),
                       sequence.tokens.begin() + static_cast<long>(span.first_position + rows));
  batch_.tokens.insert(batch_.tokens.end(), draft.begin(), draft.end());
  batch_.spans.push_back(span);
  batch_sequences_.push_back(&sequence);
  if (!ends) return;
  sequence.check.begin(draft);
  for (size_t row = rows - 1; row < span.rows; ++row) {
    batch_.output_rows.push_back(static_cast<uint32_t>(span.first_row + row));
    output_sequences_.push_back(&sequence);
  }
}

// Whether every running sequence waits for its next token only.
bool Scheduler::only_decodes() const {
  return std::all_of(running_.begin(), running_.end(),
                     [](const auto& sequence) { return sequence->pending() == 1; });
}

// Guesses, while no prompt waits: its rows are worth more than guesses, and the policy compares
// steps of one kind.
void Scheduler::draft() {
  for (auto& sequence : running_) sequence->draft.clear();
  if (speculator_ == nullptr || running_.empty() || !only_decodes()) return;
  if (!speculator_->begin_step(running_.size())) return;
  DraftPolicy::Step step{static_cast<double>(running_.size()), running_.size()};
  for (auto& sequence : running_) {
    if (sequence->drafter == nullptr) continue;
    const size_t left = sequence->tokens_max - sequence->tokens.size();
    if (left < 2) continue;  // one comes without a draft
    const size_t room = limits_.rows_max - step.rows;
    speculator_->propose(*sequence, std::min(left - 1, room), step);
  }
}

// Decoding sequences first, one row each; prompts share what is left.
void Scheduler::plan() {
  batch_.clear();
  batch_sequences_.clear();
  output_sequences_.clear();
  draft();
  for (auto& sequence : running_) {
    if (sequence->pending() == 1) add_span(*sequence, 1);
  }
  answer_rows_ = batch_.tokens.size();
  plan_prompts(pacer_.prompt_rows(answer_rows_, limits_.rows_max - answer_rows_));
}

void Scheduler::plan_prompts(size_t rows) {
  std::vector<Sequence*> prompts;  // in order of their start
  for (auto& sequence : running_) {
    if (!sequence->finished && sequence->pending() > 1) prompts.push_back(sequence.get());
  }
  if (prompts.empty()) return;
  std::vector<Sequence*> by_left = prompts;
  std::stable_sort(by_left.begin(), by_left.end(),
                   [](Sequence* a, Sequence* b) { return a->pending() < b->pending(); });
  std::map<Sequence*, size_t> shares;
  const auto give = [&](Sequence* sequence, size_t most) {
    const size_t share = std::min({most, rows, sequence->pending() - shares[sequence]});
    shares[sequence] += share;
    rows -= share;
  };
  give(by_left.front(), (rows + 1) / 2);
  give(prompts.front(), rows);
  for (Sequence* sequence : by_left) give(sequence, rows);
  for (Sequence* sequence : prompts) {
    if (shares[sequence] > 0) add_span(*sequence, shares[sequence]);
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
      if (!sequence.check.wants_row()) continue;
      sample_row(sequence, logits.subspan(i * model_.logits_stride(), model_.config().vocabulary));
    }
  }
}

void Scheduler::sample_row(Sequence& sequence, std::span<const float> logits) {
  const auto drawn =
      sequence.sampler.sample(logits, sequence.tokens, sequence.tokens.size(), workspace_);
  if (!drawn.ok()) {
    sequence.check.end();
    sequence.end(FinishReason::kFailed, drawn.status().message());
    return;
  }
  sequence.check.take(drawn->token);
  sequence.accept(*drawn);
  if (sequence.finished) sequence.check.end();
}

// The cache keeps the rows whose tokens are those of the text.
void Scheduler::keep_rows(Sequence& sequence, const Span& span) {
  const size_t drafted = sequence.draft.tokens.size();
  const size_t accepted = drafted == 0 ? 0 : sequence.check.accepted();
  // An end token that was drafted is right but no part of the text.
  const size_t kept =
      std::min(span.first_position + span.rows - (drafted - accepted), sequence.tokens.size());
  (sequence.kv.length() < sequence.prompt_tokens() ? stats_.prefill_rows : stats_.decode_rows) +=
      span.rows;
  sequence.kv.advance(span.rows);
  if (kept < sequence.kv.length()) sequence.kv.truncate(kept);
  if (!sequence.kv.evicted()) {
    sequence.inserted_blocks = prefixes_.insert(sequence.tokens, sequence.inserted_blocks,
                                                sequence.kv, sequence.request.client);
    if (sequence.kv.length() == sequence.prompt_tokens()) {
      prefixes_.insert_part(sequence.tokens, sequence.kv, sequence.request.client);
      if (evictor_ != nullptr) evict(sequence);
    }
  }
  given_[sequence.request.client] += static_cast<double>(span.rows);
  sequence.kv.drop_unseen();
  if (drafted == 0) return;
  speculator_->observe(sequence, accepted, accepted < drafted && !sequence.finished);
}

void Scheduler::evict(Sequence& sequence) {
  const Status status =
      sequence.kv.evict(compute_.kernels(), evictor_->choose(compute_, sequence.kv),
                        [this](size_t group) { prefixes_.make_free(group, 1); });
  if (!status.ok()) sequence.end(FinishReason::kFailed, status.message());
}

bool Scheduler::step() {
  end_overdue();
  collect_finished();
  start_waiting();
  plan();
  if (!batch_.tokens.empty()) {
    const bool decodes = speculator_ != nullptr && only_decodes();
    const auto start = Sequence::Clock::now();
    model_.forward(compute_, batch_);
    ++stats_.steps;
    sample_outputs();
    for (size_t i = 0; i < batch_.spans.size(); ++i) {
      keep_rows(*batch_sequences_[i], batch_.spans[i]);
    }
    const std::chrono::duration<double> seconds = Sequence::Clock::now() - start;
    if (decodes) speculator_->observe_step(batch_.tokens.size(), seconds.count());
    pacer_.measured(answer_rows_, batch_.tokens.size() - answer_rows_, seconds.count());
  }
  collect_finished();
  forget_clients();
  return !idle();
}

void Scheduler::collect_finished() {
  std::erase_if(running_, [&](std::unique_ptr<Sequence>& sequence) {
    if (!sequence->finished) return false;
    unreserve(*sequence);
    if (speculator_ != nullptr) speculator_->end(*sequence);
    if (evictor_ != nullptr) evictor_->forget(sequence->kv);
    finish(*sequence);
    return true;
  });
}

void Scheduler::finish(Sequence& sequence) {
  CHECK(sequence.finished);
  if (sequence.request.on_completion) sequence.request.on_completion(sequence.completion);
}

// Of a client that neither waits nor runs any more nothing is kept.
void Scheduler::forget_clients() {
  if (given_.size() < 2) return;
  std::map<uint64_t, double> kept;
  const auto keep = [&](const Sequence& sequence) {
    const uint64_t client = sequence.request.client;
    kept[client] = given_[client];
  };
  for (const auto& sequence : waiting_) keep(*sequence);
  for (const auto& sequence : running_) keep(*sequence);
  given_ = std::move(kept);
}

}  // namespace kvikk
