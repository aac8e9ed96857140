#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "drafting/model_drafter.h"
#include "drafting/registry.h"
#include "engine/chat_prompt.h"
#include "engine/choose_kv.h"
#include "engine/condition_keys.h"
#include "engine/load_model.h"
#include "engine/saved_cache.h"
#include "models/kv_coding.h"
#include "text/utf8.h"

namespace kvikk {

namespace {

// Bytes that can be used without swapping; 0 when the system does not say.
size_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    file.ignore(64, '\n');
  }
  return 0;
}

// Context and slabs of each group. An explicit context must fit; an automatic one shrinks until it
// does.
Status size_cache(const KvShape& shape, const ModelConfig& config, EngineOptions& options,
                  std::vector<size_t>& slabs) {
  const size_t parallel = static_cast<size_t>(options.parallel);
  const size_t free_bytes = available_memory_bytes();
  const bool given = options.kv_memory_mib > 0;
  const size_t budget = given ? static_cast<size_t>(options.kv_memory_mib) << 20
                              : (free_bytes == 0 ? size_t{1} << 30 : free_bytes / 2);
  const size_t step = static_cast<size_t>(options.chunk);
  const auto bytes_for = [&](size_t tokens, size_t sequences) {
    size_t bytes = 0;
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      bytes += sequences * (shape.sequence_slabs(g, tokens, step) + 1) * shape.slab_bytes(g);
    }
    return bytes;
  };
  size_t context = options.context > 0 ? static_cast<size_t>(options.context) : config.context;
  if (options.context > 0 && bytes_for(context, 1) > budget) {
    return exhausted("a context of " + std::to_string(context) + " tokens needs " +
                     std::to_string(bytes_for(context, 1) >> 20) + " MiB of key-value cache; " +
                     std::to_string(budget >> 20) + " MiB are " +
                     (given ? "allowed by kv_memory_mib" : "half of what is free"));
  }
  while (context > kPageTokens && bytes_for(context, 1) > budget) context -= kPageTokens;
  if (bytes_for(context, 1) > budget) {
    return exhausted("the key-value cache needs at least " +
                     std::to_string(bytes_for(context, 1) >> 20) + " MiB; there are " +
                     std::to_string(budget >> 20));
  }
  options.context = static_cast<int32_t>(context);
  // As much again for the prefix cache, where there is room: a follow-up question finds its
  // conversation.
  size_t sequences = 2 * parallel;
  while (sequences > 1 && bytes_for(context, sequences) > budget) --sequences;
  slabs.clear();
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    slabs.push_back(sequences * (shape.sequence_slabs(g, context, step) + 1));
  }
  return ok_status();
}

// Whether the cache can fit at all: before the weights are read, which takes a while.
Status check_cache(const ModelConfig& config, const KvChoice& choice, EngineOptions options) {
  const size_t context = options.context > 0 ? static_cast<size_t>(options.context) : 0;
  std::shared_ptr<const KvCoder> coder;
  if (choice.coded()) {
    TRY_ASSIGN(coder, make_kv_coder(config, choice, context));
  }
  std::vector<size_t> slabs;
  return size_cache(Model::kv_shape(config, choice.exact, coder), config, options, slabs);
}

// Large enough for the model and, where there is one, for its draft model.
Result<std::unique_ptr<Compute>> make_compute(const Kernels& kernels, int threads,
                                              const ModelConfig& config, const ModelConfig* draft,
                                              bool coded_kv) {
  size_t inputs = 0, rows = Attention::kTileRows, dim = 0;
  for (const ModelConfig* c : {&config, draft}) {
    if (c == nullptr) continue;
    inputs = std::max(inputs, c->widest());
    rows = std::max(rows, c->heads / c->kv_heads);
    dim = std::max(dim, Model::attend_dim_max(*c, coded_kv && c == &config));
  }
  return Compute::create(kernels, threads, inputs, rows, dim);
}

// A model that can guess for `target`. Errors: those of ModelFile::open; kInvalidArgument where it
// has another vocabulary.
Result<ModelFile> open_draft(const std::string& path, const ModelFile& target) {
  TRY_ASSIGN(ModelFile draft, ModelFile::open(path));
  TRY(draft.check_writes_text());
  TRY_ASSIGN(const std::optional<Tokenizer> own, draft.tokenizer());
  TRY_ASSIGN(const std::optional<Tokenizer> targets, target.tokenizer());
  if (!own.has_value() || !targets.has_value()) {
    return invalid_argument(path + " cannot guess for " + target.path +
                            ": one of them has no tokenizer to compare");
  }
  const Status same = check_same_vocabulary(*targets, *own);
  if (!same.ok()) {
    return invalid_argument(path + " cannot guess for " + target.path + ": " + same.message());
  }
  return draft;
}

// Null where nobody guesses.
Result<std::unique_ptr<Speculator>> make_speculator(Compute& compute, const SpecChoice& spec,
                                                    std::optional<ModelFile> draft,
                                                    const SchedulerLimits& limits,
                                                    size_t vocabulary,
                                                    const EngineOptions& options) {
  std::unique_ptr<Drafter> drafter = make_token_drafter(spec);
  if (draft.has_value()) {
    DraftModel model{draft->tensors, draft->config, {}};
    TRY_ASSIGN(model.weights,
               load_weights(*draft->tensors, model.config, compute.pool(), LoadOptions{}));
    DraftModelLimits draft_limits;
    draft_limits.vocabulary = vocabulary;
    draft_limits.rows_max = limits.rows_max;
    draft_limits.context = std::min(limits.context, model.config.context);
    draft_limits.sequences_max = limits.sequences_max;
    TRY_ASSIGN(drafter, make_model_drafter(std::move(model), draft_limits, compute));
  }
  if (drafter == nullptr) return std::unique_ptr<Speculator>();
  return std::make_unique<Speculator>(std::move(drafter), static_cast<size_t>(options.draft),
                                      static_cast<size_t>(options.spec_memory), limits.rows_max);
}

void evict_tokens(Model& model, Scheduler& scheduler, KvEviction kind) {
  auto evictor = std::make_unique<TokenEvictor>(kind, model.config().layers, model.config().heads);
  model.observe_queries([seen = evictor.get()](const Batch& batch, size_t layer,
                                               const float* queries, size_t stride) {
    seen->observe(batch.spans, layer, queries, stride);
  });
  scheduler.set_evictor(std::move(evictor));
}

// A model without a usable tokenizer still completes token ids.
Result<Sampler> make_sampler(Engine& engine, const SamplingOptions& options) {
  const auto text = engine.tokenizer();
  TokenBytes bytes;
  if (text.ok()) bytes = [tokens = *text](TokenId id) { return tokens->token_bytes(id); };
  return Sampler::create(options, engine.vocabulary(), bytes);
}

}  // namespace

struct Engine::Parts {
  EngineOptions options;
  std::string kv_reason;
  OpenedModel file;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Model> model;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Scheduler> scheduler;
  RequestId last_id = 0;
  std::optional<Result<Tokenizer>> tokenizer;
  std::optional<Result<Template>> chat_template;
};

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

const std::string& Engine::name() const { return config().name; }
size_t Engine::vocabulary() const { return config().vocabulary; }
size_t Engine::context() const { return static_cast<size_t>(parts_->options.context); }
const EngineOptions& Engine::options() const { return parts_->options; }
const std::string& Engine::kv_reason() const { return parts_->kv_reason; }
const char* Engine::cpu_level() const { return parts_->compute->kernels().level; }
size_t Engine::weight_bytes() const { return parts_->model->weights().memory.size(); }
const ModelConfig& Engine::config() const { return parts_->model->config(); }
const OpenedModel& Engine::file() const { return parts_->file; }
Model& Engine::model() { return *parts_->model; }
Compute& Engine::compute() { return *parts_->compute; }
PagePool& Engine::pool() { return *parts_->pool; }
Scheduler& Engine::scheduler() { return *parts_->scheduler; }
void Engine::cancel(RequestId id) { parts_->scheduler->cancel(id); }
bool Engine::step() { return parts_->scheduler->step(); }
bool Engine::idle() const { return parts_->scheduler->idle(); }

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, const EngineOptions& options,
                                             const OnProgress& progress) {
  TRY_ASSIGN(ModelFile file, ModelFile::open(path));
  return load(std::move(file), options, progress);
}

Result<std::unique_ptr<Engine>> Engine::load(ModelFile file, const EngineOptions& options,
                                             const OnProgress& progress) {
  TRY(validate(options));
  TRY(file.check_writes_text());
  std::unique_ptr<Engine> engine(new Engine(std::make_unique<Parts>()));
  Parts& parts = *engine->parts_;
  parts.options = options;
  EngineOptions& o = parts.options;
  if (o.threads <= 0) o.threads = available_cores();
  if (o.chunk < o.parallel) o.chunk = o.parallel;
  TRY_ASSIGN(const CpuFeatures features, choose_features(o.cpu_level));
  if (o.kv == kKvAuto) {
    TRY_ASSIGN(KvDecision decision, choose_kv(file, o));
    o.kv = std::move(decision.kv);
    parts.kv_reason = std::move(decision.why);
  }
  TRY_ASSIGN(const KvChoice choice, parse_kv(o.kv, o.exact ? KvFormat::kF32 : KvFormat::kBF16));
  o.kv = choice.name();
  parts.file = file;
  ModelConfig& config = file.config;
  if (choice.eviction != KvEviction::kNone && config.mla.rank > 0) {
    return unsupported("kv '" + o.kv + "' keeps tokens of each head; this model's heads share one");
  }
  TRY(check_cache(config, choice, o));

  TRY_ASSIGN(const SpecChoice spec, parse_spec(o.spec));
  std::optional<ModelFile> draft_file;
  if (!spec.model.empty()) {
    TRY_ASSIGN(draft_file, open_draft(spec.model, file));
  }

  TRY_ASSIGN(parts.compute,
             make_compute(make_kernels(features), o.threads, config,
                          draft_file ? &draft_file->config : nullptr, choice.coded()));
  TRY_ASSIGN(ModelWeights weights,
             load_weights(*file.tensors, config, parts.compute->pool(), load_options(o, progress)));
  const size_t context_most = o.context > 0 ? static_cast<size_t>(o.context) : config.context;
  std::shared_ptr<const KvCoder> coder;
  if (choice.coded()) {  // its sizes do not depend on what is measured
    TRY_ASSIGN(coder, make_kv_coder(config, choice, context_most));
  }
  std::vector<size_t> slabs;
  TRY(size_cache(Model::kv_shape(config, choice.exact, coder), config, o, slabs));
  const size_t rows_max = static_cast<size_t>(o.chunk);
  TRY_ASSIGN(parts.model, Model::create(file.tensors, config, std::move(weights), *parts.compute,
                                        rows_max, engine->context(), choice.coded()));
  if (choice.coded()) {
    const Result<const Tokenizer*> tokenizer = engine->tokenizer();
    TRY_ASSIGN(auto conditioning, condition_keys(*parts.model, *parts.compute, *file.tensors,
                                                 tokenizer.ok() ? *tokenizer : nullptr,
                                                 {choice, context_most, o.weights, o.cache_dir}));
    if (!conditioning.empty()) coder = coder->conditioned(std::move(conditioning));
  }
  TRY_ASSIGN(PagePool pool, PagePool::create(Model::kv_shape(config, choice.exact, coder), slabs));
  parts.pool = std::make_unique<PagePool>(std::move(pool));
  TRY_ASSIGN(SamplerWorkspace workspace, SamplerWorkspace::create(config.vocabulary));
  SchedulerLimits limits;
  limits.rows_max = rows_max;
  limits.sequences_max = static_cast<size_t>(o.parallel);
  limits.context = engine->context();
  limits.step_seconds_max = o.max_step_ms / 1000.0;
  TRY_ASSIGN(
      std::unique_ptr<Speculator> speculator,
      make_speculator(*parts.compute, spec, std::move(draft_file), limits, config.vocabulary, o));
  parts.scheduler = std::make_unique<Scheduler>(*parts.compute, *parts.model, *parts.pool, limits,
                                                std::move(workspace), std::move(speculator));
  if (choice.eviction != KvEviction::kNone) {
    evict_tokens(*parts.model, *parts.scheduler, choice.eviction);
  }
  if (!o.prefix_disk.empty()) TRY(keep_prefixes_on_disk(*engine));
  return engine;
}

Result<const Tokenizer*> Engine::tokenizer() {
  if (!parts_->tokenizer.has_value()) {
    Result<std::optional<Tokenizer>> made = parts_->file.tokenizer();
    if (made.ok() && made->has_value()) {
      parts_->tokenizer = std::move(**made);
    } else {
      parts_->tokenizer = Result<Tokenizer>(
          made.ok() ? unsupported(parts_->file.path + ": has no tokenizer") : made.status());
    }
  }
  if (!parts_->tokenizer->ok()) return parts_->tokenizer->status();
  const Tokenizer* tokenizer = &parts_->tokenizer->value();
  TRY(check_vocabulary(parts_->file.path, *tokenizer, config().vocabulary));
  return tokenizer;
}

Result<const Template*> Engine::chat_template() {
  if (!parts_->chat_template.has_value()) {
    Result<std::optional<std::string>> source = parts_->file.chat_template();
    if (source.ok() && source->has_value()) {
      parts_->chat_template = Template::parse(std::move(**source));
    } else {
      parts_->chat_template = Result<Template>(
          source.ok() ? not_found(parts_->file.path + ": has no chat template") : source.status());
    }
  }
  if (!parts_->chat_template->ok()) return parts_->chat_template->status();
  return &parts_->chat_template->value();
}

Result<std::vector<TokenId>> Engine::encode(std::string_view text, bool special) {
  TRY_ASSIGN(const Tokenizer* tokens, tokenizer());
  return encode_text(*tokens, text, special);
}

Result<std::vector<TokenId>> Engine::encode_chat(const std::vector<Message>& messages) {
  TRY_ASSIGN(const Tokenizer* tokens, tokenizer());
  TRY_ASSIGN(const Template* chat, chat_template());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Message& message : messages) {
    list.push_back({{"role", replace_invalid_utf8(message.role)},
                    {"content", replace_invalid_utf8(message.content)}});
  }
  return encode_conversation(*tokens, *chat, {{"messages", std::move(list)}});
}

Result<std::string> Engine::decode(const std::vector<TokenId>& tokens) {
  TRY_ASSIGN(const Tokenizer* texts, tokenizer());
  for (const TokenId token : tokens) {
    if (token >= 0 && static_cast<size_t>(token) < texts->size()) continue;
    return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                            std::to_string(texts->size()));
  }
  return texts->decode(tokens, true);
}

Status Engine::check(const Request& request) {
  if (request.tokens.empty()) return invalid_argument("the prompt is empty");
  for (TokenId token : request.tokens) {
    if (token >= 0 && static_cast<size_t>(token) < config().vocabulary) continue;
    return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                            std::to_string(config().vocabulary));
  }
  if (request.stop.size() > kStopStringsMax) {
    return invalid_argument("stop has " + std::to_string(request.stop.size()) +
                            " strings; at most " + std::to_string(kStopStringsMax));
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty() || stop.size() > kStopStringBytesMax) {
      return invalid_argument("a stop string must have 1 to " +
                              std::to_string(kStopStringBytesMax) + " bytes");
    }
  }
  TRY(Sampler::check(request.sampling, vocabulary(), tokenizer().ok()));
  return parts_->scheduler->check(request.tokens.size(), request.max_tokens);
}

Result<RequestId> Engine::submit(Request request) {
  TRY(check(request));
  TRY_ASSIGN(Sampler sampler, make_sampler(*this, request.sampling));
  auto sequence = std::make_unique<Sequence>(std::move(sampler), SequenceKv(*parts_->pool));
  sequence->id = ++parts_->last_id;
  if (const auto text = tokenizer(); text.ok()) {
    sequence->tokenizer = *text;
    sequence->detokenizer.emplace(**text);
  }
  sequence->stop_matcher = StopMatcher(request.stop);
  sequence->submitted = Sequence::Clock::now();
  sequence->completion.seed = static_cast<int64_t>(sequence->sampler.seed());
  sequence->request = std::move(request);
  const RequestId id = sequence->id;
  TRY(parts_->scheduler->admit(std::move(sequence)));
  return id;
}

Result<Completion> Engine::complete(Request request, const std::function<bool()>& cancelled) {
  std::optional<Completion> completion;
  auto forward = std::move(request.on_completion);
  request.on_completion = [&](const Completion& c) {
    completion = c;
    if (forward) forward(c);
  };
  TRY_ASSIGN(const RequestId id, submit(std::move(request)));
  while (!completion.has_value()) {
    if (cancelled && cancelled()) cancel(id);
    step();
  }
  if (completion->reason == FinishReason::kFailed) return damaged(completion->error);
  return std::move(*completion);
}

}  // namespace kvikk
