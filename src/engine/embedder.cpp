#include "engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "engine/load_model.h"

namespace kvikk {

namespace {

// Rows of a step: enough for the tiles of prefill, little memory. A long text of an encoder gets a
// step as long as itself.
constexpr size_t kStepRows = 512;
constexpr size_t kStepTextsMax = 64;
// Above any published encoder; the buffers of a step have this many rows.
constexpr size_t kEncoderContextMax = 1 << 15;

Result<size_t> choose_context(const ModelFile& file, const EmbedderOptions& options) {
  const ModelConfig& c = file.config;
  const size_t asked = static_cast<size_t>(options.context);
  const size_t most = c.learned_positions > 0 ? c.context : asked;
  if (asked > most) {
    return invalid_argument("context is " + std::to_string(asked) + "; " + file.path + " has " +
                            std::to_string(c.context) + " positions");
  }
  const size_t context = asked > 0 ? asked : c.context;
  if (!c.encoder || context <= kEncoderContextMax) return context;
  return exhausted(file.path + ": a context of " + std::to_string(context) +
                   " tokens is more than an encoder's texts can have here, which is " +
                   std::to_string(kEncoderContextMax) + "; set a smaller context");
}

// Those that an engine has too.
EngineOptions engine_options(const EmbedderOptions& options) {
  EngineOptions engine;
  engine.context = options.context;
  engine.threads = options.threads;
  engine.exact = options.exact;
  engine.weights = options.weights;
  engine.cpu_level = options.cpu_level;
  engine.cache_dir = options.cache_dir;
  return engine;
}

}  // namespace

Status validate(const EmbedderOptions& options) {
  TRY(validate(engine_options(options)));
  if (options.pooling.empty() || pooling_of(options.pooling).has_value()) return ok_status();
  return invalid_argument("pooling '" + options.pooling +
                          "' is not known; it can be mean, cls, last");
}

Result<std::unique_ptr<Embedder>> Embedder::load(ModelFile file, const EmbedderOptions& options,
                                                 const Engine::OnProgress& progress) {
  TRY(validate(options));
  std::unique_ptr<Embedder> e(new Embedder);
  e->options_ = options;
  TRY_ASSIGN(std::optional<Tokenizer> tokenizer, file.tokenizer());
  if (!tokenizer.has_value()) return unsupported(file.path + ": has no tokenizer");
  e->tokenizer_ = std::make_unique<Tokenizer>(std::move(*tokenizer));
  if (options.pooling.empty()) {
    TRY_ASSIGN(e->pooling_, read_pooling(file));
  } else {
    e->pooling_ = *pooling_of(options.pooling);
  }
  ModelConfig& config = file.config;
  TRY_ASSIGN(e->context_, choose_context(file, options));
  e->rows_max_ = config.encoder ? std::max(kStepRows, e->context_) : kStepRows;

  TRY_ASSIGN(const CpuFeatures features, choose_features(options.cpu_level));
  const int threads = options.threads > 0 ? options.threads : available_cores();
  TRY_ASSIGN(e->compute_,
             Compute::create(make_kernels(features), threads, config.widest(),
                             std::max(Attention::kTileRows, config.heads / config.kv_heads),
                             Model::attend_dim_max(config, false)));
  TRY_ASSIGN(ModelWeights weights, load_weights(*file.tensors, config, e->compute_->pool(),
                                                load_options(engine_options(options), progress)));
  TRY(check_vocabulary(file.path, *e->tokenizer_, config.vocabulary));
  const KvShape shape = Model::kv_shape(config, options.exact ? KvFormat::kF32 : KvFormat::kBF16);
  // One text may be as long as the context, the others of a step are new in it.
  const size_t slabs = (e->context_ + e->rows_max_) / kPageTokens + kStepTextsMax + 1;
  TRY_ASSIGN(PagePool pool,
             PagePool::create(shape, std::vector<size_t>(shape.groups.size(), slabs)));
  e->pool_ = std::make_unique<PagePool>(std::move(pool));
  TRY_ASSIGN(e->model_, Model::create(file.tensors, config, std::move(weights), *e->compute_,
                                      e->rows_max_, e->context_));
  return e;
}

size_t Embedder::count_tokens(std::string_view text) const {
  return tokenizer_->encode(text, {}).size();
}

Result<std::vector<TokenId>> Embedder::encode(std::string_view text) const {
  std::vector<TokenId> tokens = tokenizer_->encode(text, {.add_bos_eos = true});
  if (tokens.empty()) return invalid_argument("the text is empty: it has no tokens");
  if (tokens.size() <= context_) return tokens;
  if (!options_.truncate) {
    return invalid_argument("the text has " + std::to_string(tokens.size()) +
                            " tokens; the context has " + std::to_string(context_) +
                            ": split the text, or ask to truncate");
  }
  const TokenId last = tokens.back();
  tokens.resize(context_);
  if (tokenizer_->adds_eos()) tokens.back() = last;  // a text ends as the model knows it
  return tokens;
}

struct Embedder::Running {
  struct Text {
    size_t index = 0;
    SequenceKv kv;
    std::vector<double> sum;  // [dimensions], of the states that were pooled
    size_t count = 0;         // of them
  };
  std::span<const std::vector<TokenId>> texts;
  std::deque<Text> active;  // of this step; only the first can have begun in another
  size_t next = 0;          // the first text that has not begun
  Batch batch;

  bool done() const { return active.empty() && next == texts.size(); }
  const std::vector<TokenId>& tokens(const Text& text) const { return texts[text.index]; }
};

// The coming step: as many texts as it has room for.
Status Embedder::fill(Running& running) {
  Batch& batch = running.batch;
  batch.clear();
  const auto add = [&](Running::Text& text) -> Status {
    const std::vector<TokenId>& tokens = running.tokens(text);
    const size_t first = text.kv.length();
    const size_t row = batch.tokens.size();
    const size_t count = std::min(tokens.size() - first, rows_max_ - row);
    TRY(text.kv.reserve(count));
    batch.spans.push_back({&text.kv, row, count, first});
    for (size_t i = 0; i < count; ++i) {
      const size_t at = first + i;
      batch.tokens.push_back(tokens[at]);
      const bool pooled = pooling_ == Pooling::kMean || (pooling_ == Pooling::kCls && at == 0) ||
                          (pooling_ == Pooling::kLast && at + 1 == tokens.size());
      if (pooled) batch.output_rows.push_back(static_cast<uint32_t>(row + i));
    }
    return ok_status();
  };
  for (Running::Text& text : running.active) TRY(add(text));
  while (running.next < running.texts.size() && running.active.size() < kStepTextsMax) {
    const size_t room = rows_max_ - batch.tokens.size();
    const size_t wanted = running.texts[running.next].size();
    if (room == 0 || (model_->config().encoder && wanted > room)) break;
    running.active.push_back(
        {running.next++, SequenceKv(*pool_), std::vector<double>(dimensions()), 0});
    TRY(add(running.active.back()));
  }
  return ok_status();
}

// Adds the states of the step to the sums of their texts.
void Embedder::collect(Running& running) {
  const float* state = model_->outputs();
  auto row = running.batch.output_rows.begin();
  for (size_t i = 0; i < running.active.size(); ++i) {
    Running::Text& text = running.active[i];
    const Span& span = running.batch.spans[i];
    for (; row != running.batch.output_rows.end() && *row < span.first_row + span.rows; ++row) {
      for (double& sum : text.sum) sum += static_cast<double>(*state++);
      ++text.count;
    }
    text.kv.advance(span.rows);
    text.kv.drop_unseen();
  }
}

Status Embedder::finish(const std::vector<double>& sum, size_t count, float* out) const {
  double squares = 0.0;
  for (const double x : sum) squares += x * x;
  if (!std::isfinite(squares)) return damaged("the model's weights make no numbers of this text");
  double divisor = static_cast<double>(count);
  if (!options_.raw && squares > 0.0) divisor = std::sqrt(squares);
  for (size_t d = 0; d < sum.size(); ++d) out[d] = static_cast<float>(sum[d] / divisor);
  return ok_status();
}

Status Embedder::embed(std::span<const std::vector<TokenId>> texts, float* out,
                       const std::function<bool()>& cancelled) {
  Running running;
  running.texts = texts;
  while (!running.done()) {
    if (cancelled && cancelled()) return kvikk::cancelled("stopped");
    TRY(fill(running));
    model_->forward(*compute_, running.batch);
    collect(running);
    while (!running.active.empty()) {
      const Running::Text& text = running.active.front();
      if (text.kv.length() < running.tokens(text).size()) break;  // the last one, not whole yet
      TRY(finish(text.sum, text.count, out + text.index * dimensions()));
      running.active.pop_front();
    }
  }
  return ok_status();
}

}  // namespace kvikk
