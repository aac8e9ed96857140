// kvikk eval ppl and kl: perplexity of a text, and how far apart two ways of running a model are.

#include <algorithm>

#include "engine/chat_prompt.h"
#include "engine/evaluate.h"
#include "model_source.h"
#include "progress.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "text/option_entry.h"
#include "text_pieces.h"
#include "verbs.h"

namespace kvikk {
namespace {

// The null control: the base against itself, loaded and cut another way.
constexpr int32_t kNullTokens = 256;
constexpr int32_t kNullChunk = 64;

struct TextOptions {
  std::string text;
  int32_t ctx = 512;
  int32_t chunks = 1 << 20;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(text, "text", 0, 4096, "file with the text");
    v(ctx, "ctx", 2, 1 << 27, "tokens of a piece of text, each computed from an empty cache");
    v(chunks, "chunks", 1, 1 << 20, "pieces of the text at most");
    v(json, "json", false, true, "one JSON document");
  }
};

struct AgainstOption {
  std::string against = "exact";

  template <class V>
  void visit(V&& v) {
    v(against, "against", 1, 4096, "the base: options such as exact or kv=f32,cpu_level=avx2");
  }
};

Result<std::vector<TokenId>> read_text(Engine& engine, const TextOptions& options) {
  TRY_ASSIGN(const std::string text, read_file(options.text, kTextBytesMax));
  TRY_ASSIGN(const Tokenizer* tokenizer, engine.tokenizer());
  return text_pieces(*tokenizer, text, static_cast<size_t>(options.ctx));
}

// "exact,threads=1" over the defaults.
Result<EngineOptions> parse_against(const std::string& text) {
  EngineOptions options;
  std::vector<OptionEntry> entries;
  options.visit(OptionBinder(entries));
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    const size_t equals = std::min(item.find('='), item.size());
    const std::string value = equals < item.size() ? item.substr(equals + 1) : "true";
    const Status status = set_option(entries, item.substr(0, equals), value);
    if (!status.ok()) return invalid_argument("--against " + text + ": " + status.message());
    at = comma + 1;
  }
  TRY(validate(options));
  return options;
}

// A piece must fit in the context.
Status check_context(const std::string& where, const EngineOptions& engine,
                     const TextOptions& options) {
  if (engine.context >= options.ctx) return ok_status();
  return invalid_argument(where + " is " + std::to_string(engine.context) + "; pieces of --ctx " +
                          std::to_string(options.ctx) + " tokens do not fit");
}

Status check_text_options(const TextOptions& options, EngineOptions& engine) {
  if (options.text.empty()) return invalid_argument("--text FILE is missing");
  TRY(validate(engine));
  if (engine.context == 0) engine.context = options.ctx;
  return check_context("--context", engine, options);
}

Result<KlReport> null_control(Shell& shell, const ModelOptions& model, const std::string& path,
                              const EngineOptions& base_options, Engine& base,
                              std::span<const TokenId> tokens, int32_t ctx) {
  EngineOptions options = base_options;
  options.chunk = kNullChunk;
  options.context = std::min(ctx, kNullTokens);
  TRY_ASSIGN(LoadedEngine control, load_engine(shell, model, path, options));
  return evaluate_kl(base, *control.engine, tokens, static_cast<size_t>(options.context), 1);
}

nlohmann::ordered_json kl_json(const KlReport& kl, const KlReport& null) {
  return {{"mean_kl", kl.mean},
          {"mean_kl_error", kl.standard_error},
          {"median_kl", kl.median},
          {"p99_kl", kl.percentile_99},
          {"p999_kl", kl.percentile_999},
          {"max_kl", kl.max},
          {"same_top1_percent", 100.0 * kl.same_top_1},
          {"ppl", kl.perplexity},
          {"ppl_base", kl.perplexity_base},
          {"ln_ppl_ratio", kl.ln_perplexity_ratio},
          {"tokens", kl.tokens},
          {"null_mean_kl", null.mean},
          {"null_max_kl", null.max},
          {"null_same_top1_percent", 100.0 * null.same_top_1},
          {"null_tokens", null.tokens}};
}

std::string kl_table(const KlReport& kl, const KlReport& null) {
  const auto line = [](std::string name, const std::string& value) {
    name.resize(22, ' ');
    return name + value + "\n";
  };
  const auto small = [](double value) { return fixed_text(value, 6); };
  return line("mean KL", small(kl.mean) + " +- " + small(kl.standard_error)) +
         line("median, 99%, 99.9%",
              small(kl.median) + ", " + small(kl.percentile_99) + ", " + small(kl.percentile_999)) +
         line("largest", small(kl.max)) +
         line("same most likely", fixed_text(100.0 * kl.same_top_1, 2) + "%") +
         line("perplexity", fixed_text(kl.perplexity, 4) + ", base " +
                                fixed_text(kl.perplexity_base, 4) + ", ln of the ratio " +
                                small(kl.ln_perplexity_ratio)) +
         line("tokens", count_text(kl.tokens)) +
         line("null control", "mean KL " + small(null.mean) + ", largest " + small(null.max) +
                                  ", same most likely " + fixed_text(100.0 * null.same_top_1, 2) +
                                  "% of " + count_text(null.tokens));
}

}  // namespace

Status verb_eval_ppl(Shell& shell, Arguments arguments) {
  ModelOptions model;
  TextOptions options;
  EngineOptions engine_options;
  Command command({"eval ppl",
                   "",
                   "Perplexity of a text: how well the model foresees each next token.",
                   {"kvikk eval ppl -m smollm2-135m --text book.txt",
                    "kvikk eval ppl --text book.txt --ctx 2048 --chunks 4 --exact --json"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(engine_options, {"threads", "exact", "kv", "weights", "cpu_level"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(check_text_options(options, engine_options));

  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, engine_options));
  TRY_ASSIGN(const std::vector<TokenId> tokens, read_text(*loaded.engine, options));
  Result<PerplexityReport> report = [&] {
    Progress progress(shell, "reading", false);
    return evaluate_perplexity(
        *loaded.engine, tokens, static_cast<size_t>(options.ctx),
        static_cast<size_t>(options.chunks),
        [&progress](size_t done, size_t total) { progress.show(done, total); });
  }();
  if (!report.ok()) return report.status();
  if (options.json) {
    return shell.print(json_line({{"ppl", report->perplexity},
                                  {"ppl_error", report->standard_error},
                                  {"tokens", report->tokens}}));
  }
  return shell.print("perplexity " + fixed_text(report->perplexity, 4) + " +- " +
                     fixed_text(report->standard_error, 4) + " over " + count_text(report->tokens) +
                     " tokens\n");
}

Status verb_eval_kl(Shell& shell, Arguments arguments) {
  ModelOptions model;
  TextOptions options;
  AgainstOption against;
  EngineOptions test_options;
  Command command({"eval kl",
                   "",
                   "Compares the next-token distributions of two ways of running a model over a "
                   "text: how\nmuch is lost. The base runs twice over a short piece as a null "
                   "control (0 and 100%).",
                   {"kvikk eval kl -m smollm2-135m --text book.txt --ctx 2048 --chunks 2",
                    "kvikk eval kl --text book.txt --cpu-level avx2 --against cpu_level=scalar"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(against);
  command.add(test_options, {"threads", "exact", "kv", "weights", "cpu_level"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(check_text_options(options, test_options));
  TRY_ASSIGN(EngineOptions base_options, parse_against(against.against));
  if (base_options.threads == 0) base_options.threads = test_options.threads;
  if (base_options.context == 0) base_options.context = test_options.context;
  TRY(check_context("the context of --against", base_options, options));

  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(LoadedEngine base, load_engine(shell, model, path, base_options));
  TRY_ASSIGN(const std::vector<TokenId> tokens, read_text(*base.engine, options));
  Result<KlReport> report = io_error("");
  {
    TRY_ASSIGN(LoadedEngine test, load_engine(shell, model, path, test_options));
    Progress progress(shell, "comparing", false);
    report = evaluate_kl(*base.engine, *test.engine, tokens, static_cast<size_t>(options.ctx),
                         static_cast<size_t>(options.chunks),
                         [&progress](size_t done, size_t total) { progress.show(done, total); });
  }
  if (!report.ok()) return report.status();
  TRY_ASSIGN(const KlReport null,
             null_control(shell, model, path, base_options, *base.engine, tokens, options.ctx));
  return shell.print(options.json ? json_line(kl_json(*report, null)) : kl_table(*report, null));
}

}  // namespace kvikk
