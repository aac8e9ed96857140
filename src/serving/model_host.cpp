#include "serving/model_host.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"

namespace kvikk {
namespace {

using Clock = std::chrono::steady_clock;

size_t cache_bytes(const PagePool& pool) {
  size_t bytes = 0;
  for (size_t g = 0; g < pool.shape().groups.size(); ++g) {
    bytes += pool.capacity(g) * pool.shape().slab_bytes(g);
  }
  return bytes;
}

Status check_names(const std::vector<ServedModel>& models) {
  std::vector<std::string> names;
  for (const ServedModel& model : models) {
    names.push_back(model.name);
    names.insert(names.end(), model.names.begin(), model.names.end());
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return ok_status();
  return invalid_argument("two models cannot have the name '" + *twice + "'");
}

Status stopped() { return cancelled("the server is stopping"); }

}  // namespace

void add_counts(EngineLoad& total, const EngineLoad& more) {
  total.stats.steps += more.stats.steps;
  total.stats.prefill_rows += more.stats.prefill_rows;
  total.stats.decode_rows += more.stats.decode_rows;
  total.stats.cached_tokens += more.stats.cached_tokens;
  total.disk.written += more.disk.written;
  total.disk.read += more.disk.read;
  total.disk.skipped += more.disk.skipped;
  total.speculation.drafts += more.speculation.drafts;
  total.speculation.drafted += more.speculation.drafted;
  total.speculation.accepted += more.speculation.accepted;
}

struct ModelHost::State : std::enable_shared_from_this<ModelHost::State> {
  struct Entry {
    ServedModel model;
    size_t cache_bytes_max = 0;  // 0: no limit
    std::unique_ptr<LoadedModel> loaded;
    size_t users = 0;             // leases
    bool leaving = false;         // it goes when nobody uses it
    bool wanted = false;          // in `wanted`
    std::vector<Ready> waiters;   // for it to be loaded; at most waiters_max()
    Clock::time_point last_used;  // since then nobody has had a lease, or the last one was given
    ModelStatus status;           // `load` has the counts of earlier times only
  };

  Options options;
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Entry> entries;  // as many as models, always
  std::deque<size_t> wanted;   // to be loaded, in order; each model at most once
  bool stopping = false;

  void share_memory();
  Status check_memory() const;
  size_t waiters_max() const { return options.queue_max + 1; }
  Lease lease(size_t index);
  std::unique_ptr<LoadedModel> take_out(size_t index);
  void put_in(size_t index, std::unique_ptr<LoadedModel> loaded);
  Result<std::unique_ptr<LoadedModel>> open(size_t index);

  std::optional<size_t> to_unload() const;
  std::optional<size_t> victim() const;
  bool fits(size_t index) const;
  bool any_leaving() const;
  void unload(std::unique_lock<std::mutex>& lock, size_t index);
  void load_next(std::unique_lock<std::mutex>& lock);
  void wait(std::unique_lock<std::mutex>& lock);
  void run();
};

// A model's cache gets an equal share of what all weights leave; where they do not fit together,
// what its own leave.
void ModelHost::State::share_memory() {
  const size_t budget = options.memory_bytes_max;
  if (budget == 0) return;
  size_t weights = 0;
  for (const Entry& entry : entries) weights += entry.model.weight_bytes;
  for (Entry& entry : entries) {
    const size_t own = entry.model.weight_bytes;
    const size_t rest = weights < budget ? (budget - weights) / entries.size() : budget - own;
    entry.cache_bytes_max = own < budget ? std::max<size_t>(rest, 1) : 0;
  }
}

Status ModelHost::State::check_memory() const {
  for (const Entry& entry : entries) {
    const size_t budget = options.memory_bytes_max;
    if (budget == 0 || entry.model.weight_bytes < budget) continue;
    return invalid_argument("model '" + entry.model.name + "' has " +
                            std::to_string(entry.model.weight_bytes >> 20) +
                            " MiB of weights; all models together may take " +
                            std::to_string(budget >> 20) + " MiB (--memory-mib)");
  }
  return ok_status();
}

Result<std::unique_ptr<LoadedModel>> ModelHost::State::open(size_t index) {
  const Entry& entry = entries[index];  // what this reads never changes
  auto loaded = std::make_unique<LoadedModel>();
  TRY_ASSIGN(loaded->engine, entry.model.open(entry.cache_bytes_max));
  // Made here, on one thread; then any may use them.
  TRY(loaded->engine->tokenizer().status());
  static_cast<void>(loaded->engine->chat_template().ok());  // a base model has none
  loaded->runner =
      std::make_unique<EngineThread>(*loaded->engine, options.queue_max, options.deliver);
  return loaded;
}

void ModelHost::State::put_in(size_t index, std::unique_ptr<LoadedModel> loaded) {
  Entry& entry = entries[index];
  const Engine& engine = *loaded->engine;
  PagePool& pool = loaded->engine->pool();
  ++entry.status.loads;
  entry.status.loaded = true;
  entry.status.memory_bytes = engine.weight_bytes() + cache_bytes(pool);
  entry.status.context = engine.context();
  entry.status.cache_blocks = pool.capacity(0);
  entry.status.kv = engine.options().kv;
  entry.status.parallel = engine.options().parallel;
  entry.last_used = Clock::now();
  entry.loaded = std::move(loaded);
}

std::unique_ptr<LoadedModel> ModelHost::State::take_out(size_t index) {
  Entry& entry = entries[index];
  CHECK(entry.users == 0);
  add_counts(entry.status.load, entry.loaded->runner->load());
  entry.status.loaded = false;
  entry.leaving = false;
  return std::move(entry.loaded);
}

std::optional<size_t> ModelHost::State::to_unload() const {
  const auto now = Clock::now();
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.loaded == nullptr || entry.users > 0) continue;
    const bool idle = options.idle_max.count() > 0 && now >= entry.last_used + options.idle_max;
    if (entry.leaving || idle) return i;
  }
  return std::nullopt;
}

bool ModelHost::State::any_leaving() const {
  return std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.leaving; });
}

bool ModelHost::State::fits(size_t index) const {
  if (options.memory_bytes_max == 0) return true;
  const Entry& wanted_entry = entries[index];
  const bool known = wanted_entry.status.loads > 0;
  size_t bytes = known ? wanted_entry.status.memory_bytes
                       : wanted_entry.model.weight_bytes + wanted_entry.cache_bytes_max;
  bool any = false;
  for (const Entry& entry : entries) {
    if (entry.loaded == nullptr) continue;
    any = true;
    bytes += entry.status.memory_bytes;
  }
  return !any || bytes <= options.memory_bytes_max;
}

// The loaded model that is used least: one that nobody uses, else the one used longest ago.
std::optional<size_t> ModelHost::State::victim() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.loaded == nullptr || entry.leaving) continue;
    const auto rank = [](const Entry& e) { return std::pair(e.users > 0, e.last_used); };
    if (!best.has_value() || rank(entry) < rank(entries[*best])) best = i;
  }
  return best;
}

void ModelHost::State::unload(std::unique_lock<std::mutex>& lock, size_t index) {
  std::unique_ptr<LoadedModel> gone = take_out(index);
  lock.unlock();
  gone.reset();
  options.note("unloaded " + entries[index].model.name);
  lock.lock();
}

// A lease on a loaded model; under the lock.
ModelHost::Lease ModelHost::State::lease(size_t index) {
  Entry& entry = entries[index];
  ++entry.users;
  entry.last_used = Clock::now();
  return Lease(entry.loaded.get(), [self = shared_from_this(), index](LoadedModel*) {
    std::lock_guard guard(self->mutex);
    --self->entries[index].users;
    self->entries[index].last_used = Clock::now();
    self->wake.notify_all();
  });
}

void ModelHost::State::load_next(std::unique_lock<std::mutex>& lock) {
  const size_t index = wanted.front();
  Entry& entry = entries[index];
  lock.unlock();
  Result<std::unique_ptr<LoadedModel>> opened = exhausted("out of memory");
  try {
    opened = open(index);
  } catch (const std::bad_alloc&) {
  }
  const Status status = opened.status();
  if (!status.ok()) {
    options.note("model '" + entry.model.name + "' could not be loaded: " + status.message());
  }
  lock.lock();
  wanted.pop_front();
  entry.wanted = false;
  if (status.ok()) put_in(index, std::move(*opened));
  std::vector<Ready> waiters = std::exchange(entry.waiters, {});
  std::vector<Result<Lease>> results;
  for (size_t i = 0; i < waiters.size(); ++i) {
    results.push_back(status.ok() ? Result<Lease>(lease(index)) : Result<Lease>(status));
  }
  lock.unlock();
  for (size_t i = 0; i < waiters.size(); ++i) waiters[i](std::move(results[i]));
  waiters.clear();  // what they hold may be leases, which end under the lock
  results.clear();
  lock.lock();
}

void ModelHost::State::wait(std::unique_lock<std::mutex>& lock) {
  std::optional<Clock::time_point> until;
  for (const Entry& entry : entries) {
    if (entry.loaded == nullptr || entry.users > 0 || options.idle_max.count() == 0) continue;
    const Clock::time_point end = entry.last_used + options.idle_max;
    if (!until.has_value() || end < *until) until = end;
  }
  if (until.has_value()) {
    wake.wait_until(lock, *until);
  } else {
    wake.wait(lock);
  }
}

void ModelHost::State::run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (const auto index = to_unload()) {
      unload(lock, *index);
    } else if (!wanted.empty() && fits(wanted.front())) {
      load_next(lock);
    } else if (!wanted.empty() && !any_leaving()) {
      entries[*victim()].leaving = true;  // something is loaded, or it would fit
    } else {
      wait(lock);
    }
  }
  std::vector<Ready> waiters;
  for (Entry& entry : entries) {
    for (Ready& ready : entry.waiters) waiters.push_back(std::move(ready));
    entry.waiters.clear();
  }
  lock.unlock();
  for (const Ready& ready : waiters) ready(stopped());
}

Result<std::unique_ptr<ModelHost>> ModelHost::start(std::vector<ServedModel> models,
                                                    Options options) {
  CHECK(!models.empty());
  TRY(check_names(models));
  auto state = std::make_shared<State>();
  state->options = std::move(options);
  for (ServedModel& model : models) {
    state->entries.emplace_back();
    state->entries.back().model = std::move(model);
  }
  state->share_memory();
  TRY(state->check_memory());
  TRY_ASSIGN(std::unique_ptr<LoadedModel> first, state->open(0));
  state->put_in(0, std::move(first));
  std::unique_ptr<ModelHost> host(new ModelHost(state));
  host->thread_ = std::thread([state = state.get()] { state->run(); });
  return host;
}

ModelHost::~ModelHost() {
  stop();
  std::vector<std::unique_ptr<LoadedModel>> all;
  {
    std::lock_guard lock(state_->mutex);
    for (State::Entry& entry : state_->entries) all.push_back(std::move(entry.loaded));
  }
  all.clear();  // joins the engines' threads, which may end leases meanwhile
}

void ModelHost::stop() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ModelHost::cancel_all() {
  std::lock_guard lock(state_->mutex);
  for (const State::Entry& entry : state_->entries) {
    if (entry.loaded != nullptr) entry.loaded->runner->cancel_all();
  }
}

size_t ModelHost::count() const { return state_->entries.size(); }
const ServedModel& ModelHost::model(size_t index) const { return state_->entries[index].model; }

std::optional<size_t> ModelHost::find(const std::string& name) const {
  for (size_t i = 0; i < count(); ++i) {
    const ServedModel& m = model(i);
    const bool listed = std::find(m.names.begin(), m.names.end(), name) != m.names.end();
    if (name == m.name || listed || name == m.path) return i;
  }
  return std::nullopt;
}

ModelStatus ModelHost::status(size_t index) const {
  std::lock_guard lock(state_->mutex);
  const State::Entry& entry = state_->entries[index];
  ModelStatus status = entry.status;
  if (entry.loaded != nullptr) {
    status.load = entry.loaded->runner->load();
    add_counts(status.load, entry.status.load);
  } else {
    status.memory_bytes = 0;
  }
  status.load.waiting += entry.waiters.size();
  return status;
}

std::optional<Result<ModelHost::Lease>> ModelHost::take(size_t index, Ready ready) {
  std::lock_guard lock(state_->mutex);
  if (state_->stopping) return stopped();
  State::Entry& entry = state_->entries[index];
  if (entry.loaded != nullptr && !entry.leaving) return state_->lease(index);
  if (entry.waiters.size() >= state_->waiters_max()) {
    return exhausted("the queue is full: " + std::to_string(entry.waiters.size()) +
                     " requests wait for model '" + entry.model.name + "' to be loaded");
  }
  entry.waiters.push_back(std::move(ready));
  if (!std::exchange(entry.wanted, true)) state_->wanted.push_back(index);
  state_->wake.notify_all();
  return std::nullopt;
}

}  // namespace kvikk
