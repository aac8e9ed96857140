// kvikk eval kv: every way of keeping the cache in one table: what a token takes, how far the next
// tokens are from those of the exact cache, what is found in a long text, how fast decoding is.

#include <algorithm>
#include <optional>

#include "bench_measure.h"
#include "engine/evaluate.h"
#include "kv_list.h"
#include "model_source.h"
#include "models/kv_coding.h"
#include "needle.h"
#include "progress.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "text_pieces.h"
#include "verbs.h"

namespace kvikk {
namespace {

constexpr int32_t kDecodeTokens = 32;
constexpr int32_t kWarmUpTokens = 64;

struct KvOptions {
  std::string text;
  int32_t ctx = 1024;
  int32_t chunks = 1;
  int32_t needles = 10;
  int32_t depth = 4096;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(text, "text", 0, 4096, "file with a text; default: the one that codecs are measured with");
    v(ctx, "ctx", static_cast<int>(kNeedleLengthMin), 1 << 24, "tokens of a piece of the text");
    v(chunks, "chunks", 1, 1 << 20, "pieces of the text at most");
    v(needles, "needles", 0, static_cast<int>(kNeedlesMax),
      "numbers to find in a piece of the text; 0 = none");
    v(depth, "depth", 0, 1 << 24, "tokens in the cache where decoding is timed; 0 = do not");
    v(json, "json", false, true, "one JSON document instead of the table");
  }
};

struct Row {
  std::string kv;
  size_t bytes_per_token = 0;
  std::optional<KlReport> kl;  // against the exact cache; not of that one
  size_t found = 0;            // needles
  std::optional<BenchResult> decode;
};

class Table {
 public:
  Table(Shell& shell, const ModelOptions& model, std::string path, const KvOptions& options,
        EngineOptions engine)
      : shell_(shell),
        model_(model),
        path_(std::move(path)),
        options_(options),
        engine_options_(std::move(engine)) {}

  // kvs: the caches beside the exact one; with `all` those that do not fit the model are left out.
  Status run(std::string text, const std::vector<std::string>& kvs, bool all);

 private:
  Result<Row> measure(Engine& engine, MachineLimits* limits);
  Status print_row(const Row& row);
  nlohmann::ordered_json json() const;

  Shell& shell_;
  const ModelOptions& model_;
  std::string path_;
  KvOptions options_;
  EngineOptions engine_options_;
  std::string text_;
  std::vector<Row> rows_;
};

// At least a space before it.
std::string column(std::string_view text, size_t width) {
  return " " + align_right(text, width - 1);
}

// Needles and speed, which need no other engine.
Result<Row> Table::measure(Engine& engine, MachineLimits* limits) {
  Row row;
  row.kv = engine.options().kv;
  row.bytes_per_token = engine.pool().shape().bytes_per_token();
  const bool evicts = engine.scheduler().evictor() != nullptr;
  if (evicts) row.bytes_per_token /= kEvictionKeepsOneIn;
  const auto go_on = [this] { return shell_.go_on(); };
  if (options_.needles > 0) {
    TRY_ASSIGN(const std::vector<Needle> needles,
               find_needles(engine, text_, static_cast<size_t>(options_.ctx),
                            static_cast<size_t>(options_.needles), go_on));
    for (const Needle& needle : needles) row.found += needle.found ? 1 : 0;
  }
  if (limits == nullptr || evicts) return row;  // the timed history is no prompt
  engine.scheduler().prefix_tree().clear();
  BenchSession session(engine, *limits, go_on);
  BenchPlan plan;
  plan.prefill = {0};
  plan.decode = kDecodeTokens;
  plan.depth = {options_.depth};
  plan.rows = {0};
  TRY(session.run(plan, [&](const BenchResult& result) {
    row.decode = result;
    return ok_status();
  }));
  return row;
}

Status Table::run(std::string text, const std::vector<std::string>& kvs, bool all) {
  text_ = std::move(text);
  EngineOptions exact = engine_options_;
  exact.kv.clear();
  TRY_ASSIGN(LoadedEngine base, load_engine(shell_, model_, path_, exact));
  TRY_ASSIGN(const Tokenizer* tokenizer, base.engine->tokenizer());
  const auto context = static_cast<size_t>(options_.ctx);
  const std::vector<TokenId> tokens = text_pieces(*tokenizer, text_, context);
  std::optional<MachineLimits> limits;
  if (options_.depth > 0) {
    TRY_ASSIGN(MachineLimits measured, MachineLimits::measure(base.engine->compute().kernels(),
                                                              base.engine->compute().pool()));
    limits.emplace(std::move(measured));
  }
  MachineLimits* const speed = limits.has_value() ? &*limits : nullptr;
  if (!options_.json) {
    TRY(
        shell_.print("cache           bytes/token  smaller    mean KL      99.9%  same top"
                     "        ppl  needles   tok/s at " +
                     count_text(static_cast<uint64_t>(options_.depth)) + "\n"));
  }
  TRY_ASSIGN(Row first, measure(*base.engine, speed));
  rows_.push_back(std::move(first));
  TRY(print_row(rows_.back()));
  for (const std::string& kv : kvs) {
    EngineOptions coded = engine_options_;
    coded.kv = kv;
    Result<LoadedEngine> loaded = load_engine(shell_, model_, path_, coded);
    const StatusCode code = loaded.status().code();
    if (all && (code == StatusCode::kUnsupported || code == StatusCode::kInvalidArgument)) {
      shell_.note(loaded.status().message());
      continue;
    }
    TRY(loaded.status());
    TRY_ASSIGN(Row row, measure(*loaded->engine, speed));
    Progress progress(shell_, "comparing " + kv, false);
    TRY_ASSIGN(row.kl, evaluate_kl(*base.engine, *loaded->engine, tokens, context,
                                   static_cast<size_t>(options_.chunks),
                                   [&](size_t done, size_t total) { progress.show(done, total); }));
    rows_.push_back(std::move(row));
    TRY(print_row(rows_.back()));
  }
  return options_.json ? shell_.print(json_line(json())) : ok_status();
}

Status Table::print_row(const Row& row) {
  if (options_.json) return ok_status();
  const double smaller =
      static_cast<double>(rows_[0].bytes_per_token) / static_cast<double>(row.bytes_per_token);
  std::string line = row.kv;
  line.resize(std::max<size_t>(line.size() + 1, 14), ' ');
  line += column(count_text(row.bytes_per_token), 13) + column(fixed_text(smaller, 2) + "x", 9);
  if (row.kl.has_value()) {
    line += column(fixed_text(row.kl->mean, 6), 11) +
            column(fixed_text(row.kl->percentile_999, 4), 11) +
            column(fixed_text(100.0 * row.kl->same_top_1, 2) + "%", 10) +
            column(fixed_text(row.kl->perplexity, 3), 11);
  } else {
    line += column("-", 11) + column("-", 11) + column("-", 10) + column("-", 11);
  }
  line += column(options_.needles > 0
                     ? std::to_string(row.found) + "/" + std::to_string(options_.needles)
                     : "-",
                 9);
  line += column(row.decode.has_value() ? rate_text(row.decode->median) : "-", 12);
  return shell_.print(line + "\n");
}

nlohmann::ordered_json Table::json() const {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json entry = {{"kv", row.kv},
                                    {"kv_bytes_per_token", row.bytes_per_token},
                                    {"compression", static_cast<double>(rows_[0].bytes_per_token) /
                                                        static_cast<double>(row.bytes_per_token)}};
    if (row.kl.has_value()) {
      entry["mean_kl"] = row.kl->mean;
      entry["mean_kl_error"] = row.kl->standard_error;
      entry["p999_kl"] = row.kl->percentile_999;
      entry["max_kl"] = row.kl->max;
      entry["same_top1_percent"] = 100.0 * row.kl->same_top_1;
      entry["ppl"] = row.kl->perplexity;
      entry["ppl_base"] = row.kl->perplexity_base;
    }
    if (options_.needles > 0) {
      entry["needles_found"] = row.found;
      entry["needles_asked"] = options_.needles;
    }
    if (row.decode.has_value()) {
      entry["decode_tokens_per_second"] = row.decode->median;
      entry["depth"] = row.decode->depth;
    }
    results.push_back(std::move(entry));
  }
  return {{"model", path_}, {"ctx", options_.ctx}, {"results", std::move(results)}};
}

Result<std::vector<std::string>> all_caches() {
  std::vector<std::string> names;
  for (const KvCodec* codec : kv_codecs()) names.emplace_back(codec->name);
  names.insert(names.begin() + 1, "q8/turbo4");
  for (const std::string_view name : kv_eviction_names()) names.emplace_back(name);
  return names;
}

}  // namespace

Status verb_eval_kv(Shell& shell, Arguments arguments) {
  ModelOptions model;
  KvOptions options;
  EngineOptions engine_options;
  Command command(
      {"eval kv",
       "",
       "One table over the caches of --kv A,B,.. (default: all of them), beside the "
       "exact one: bytes of\na token, KL divergence and perplexity over a text, numbers "
       "found in it, speed of decoding.",
       {"kvikk eval kv -m smollm2-135m --text book.txt --ctx 2048",
        "kvikk eval kv --kv turbo4,fit4,q8/turbo4 --depth 16384 --json"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(engine_options, {"threads", "exact", "kv", "weights", "cpu_level"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  const bool all = engine_options.kv.empty();
  TRY_ASSIGN(const std::vector<std::string> kvs,
             all ? all_caches() : split_kv_list(engine_options.kv));
  std::string text(calibration_text());
  if (!options.text.empty()) {
    TRY_ASSIGN(text, read_file(options.text, kTextBytesMax));
  }
  const int32_t needed =
      std::max(static_cast<int32_t>(needle_context(static_cast<size_t>(options.ctx))),
               options.depth + std::max(kDecodeTokens, kWarmUpTokens) + 1);
  TRY(fit_context(needed, "this measurement needs", engine_options));
  engine_options.parallel = std::max(engine_options.parallel, 2);
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  Table table(shell, model, path, options, engine_options);
  return table.run(std::move(text), kvs, all);
}

}  // namespace kvikk
