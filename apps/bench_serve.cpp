// kvikk bench serve: what the users of a server wait for, under a load: a number of clients,
// arrivals at random or in bursts, or a trace of real traffic.

#include <algorithm>
#include <cmath>
#include <mutex>

#include "load_plan.h"
#include "load_report.h"
#include "machine.h"
#include "progress.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

constexpr size_t kProbeTokens = 200;

struct LoadOutput {
  bool json = false;
  std::string plot;

  template <class V>
  void visit(V&& v) {
    v(json, "json", false, true, "one JSON document instead of the table");
    v(plot, "plot", 0, 4096, "also draw this SVG file: how long what takes, or throughput");
  }
};

// How many tokens the server's model makes of a word: asked once, which warms it up too.
Result<double> measure_words(Shell& shell, const LoadOptions& options, const LoadTarget& target) {
  LoadShape probe;
  probe.blocks = {{~uint64_t{0}, kProbeTokens}};
  probe.answer_tokens = 1;
  LoadPlan plan;
  plan.clients = 1;
  plan.timeout_seconds = options.timeout_seconds;
  plan.cancelled = [&shell] { return !shell.go_on().ok(); };
  TRY_ASSIGN(const auto results, run_load(target, {{0, load_body(options, probe, 1.0)}}, plan));
  TRY(shell.go_on());
  if (results.front().status != 200) return io_error(options.url + ": " + results.front().error);
  const size_t tokens = results.front().prompt_tokens;
  return tokens == 0 ? 3.0 : static_cast<double>(tokens) / static_cast<double>(kProbeTokens);
}

Result<LoadFigures> measure(Shell& shell, const LoadOptions& options, const LoadTarget& target,
                            const std::vector<LoadRequest>& requests, size_t clients) {
  Progress progress(shell, "asking", false);
  LoadPlan plan;
  plan.clients = clients;
  plan.timeout_seconds = options.timeout_seconds;
  plan.cancelled = [&shell] { return !shell.go_on().ok(); };
  plan.progress = [&](size_t done) { progress.show(done, requests.size()); };
  TRY_ASSIGN(std::vector<LoadResult> results, run_load(target, requests, plan));
  LoadFigures figures =
      summarize(std::move(results), options.ttft_ms / 1000, options.tpot_ms / 1000);
  figures.clients = clients;
  figures.interrupted = !shell.go_on().ok();
  return figures;
}

}  // namespace

Status verb_bench_serve(Shell& shell, Arguments arguments) {
  LoadOptions options;
  LoadOutput output;
  Command command({"bench serve",
                   "",
                   "Measures a server of the OpenAI API: time to the first token (TTFT), between "
                   "tokens (ITL), per\ntoken after the first (TPOT), to the end, and goodput: the "
                   "requests a second within limits.",
                   {"kvikk bench serve --clients 1,4,16 --requests 64 --plot frontier.svg",
                    "kvikk bench serve --trace mooncake.jsonl --trace-length 0.05 --json"}});
  command.add(options);
  command.add(output);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY_ASSIGN(LoadTarget target, parse_load_url(options.url, options.key));
  target.ca_file = options.ca_file;
  TRY_ASSIGN(const std::vector<LoadShape> shapes, plan_load(shell, options));
  TRY_ASSIGN(const std::unique_ptr<OutputFile> plot,
             OutputFile::open_if_named(output.plot, {options.trace}));
  const StopOnInterrupt stop(shell.interrupts());
  TRY_ASSIGN(const double tokens_per_word, measure_words(shell, options, target));
  std::vector<LoadRequest> requests;
  for (const LoadShape& shape : shapes) {
    requests.push_back({shape.at_seconds, load_body(options, shape, tokens_per_word)});
  }
  const bool timed = options.rate > 0 || !options.trace.empty();
  std::vector<int32_t> runs = timed ? std::vector<int32_t>{0} : options.clients;
  std::vector<LoadFigures> all;
  for (const int32_t clients : runs) {
    TRY_ASSIGN(LoadFigures figures,
               measure(shell, options, target, requests, static_cast<size_t>(clients)));
    if (!output.json) TRY(shell.print(load_table(figures)));
    all.push_back(std::move(figures));
    if (all.back().interrupted) break;
  }
  if (output.json) TRY(shell.print(json_line(load_json(all, options))));
  if (plot != nullptr) {
    TRY(plot->write(load_svg(all, options.url)));
    TRY(plot->close());
  }
  for (const LoadFigures& f : all) {
    if (f.interrupted || f.failed < f.requests) continue;
    return io_error(options.url + ": no request was answered: " + f.first_error);
  }
  return ok_status();
}

}  // namespace kvikk
