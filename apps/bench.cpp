// kvikk bench: speed of prefill, decode and rows at given depths. The table grows while it is
// measured; JSON comes at the end, or when the measurement is interrupted.

#include <algorithm>
#include <memory>
#include <mutex>

#include "bench_measure.h"
#include "bench_plot.h"
#include "bench_profile.h"
#include "bench_spec.h"
#include "kvikk_commit.h"
#include "machine.h"
#include "model_source.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

struct BenchOutput {
  bool json = false;
  std::string plot;
  std::string profile;

  template <class V>
  void visit(V&& v) {
    v(json, "json", false, true, "one JSON document instead of the table");
    v(plot, "plot", 0, 4096, "also draw speed over depth into this SVG file");
    v(profile, "profile", 0, 4096, "also show where the time goes, and write this trace file");
  }
};

// What was measured so far; also read by the thread that ends the program on Ctrl-C.
struct Report {
  std::mutex mutex;
  std::vector<BenchResult> results;
  std::string model;
  std::string kv;
  std::string level;
  int threads = 0;
  double load_seconds = 0;
  size_t peak_rss_bytes = 0;
  double bandwidth = 0;  // GB/s, median of those measured beside the results
  double int8_gops = 0;
  double bf16_gflops = 0;
  std::vector<Profile> profiles;
  std::string spec;  // who guesses ahead; empty: nobody
  std::vector<SpecResult> spec_results;
  bool complete = false;
};

double percent_of_limit(const BenchResult& r) { return 100.0 * r.median / r.limit; }

nlohmann::ordered_json report_json(Report& report) {
  std::lock_guard lock(report.mutex);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  nlohmann::ordered_json profiles_json;
  for (const BenchResult& r : report.results) {
    results.push_back({{"kind", r.kind},
                       {"depth", r.depth},
                       {"tokens", r.tokens},
                       {"tokens_per_second", r.median},
                       {"min", r.min},
                       {"max", r.max},
                       {"kv", report.kv},
                       {"threads", report.threads},
                       {"limit_tokens_per_second", r.limit},
                       {"percent_of_limit", percent_of_limit(r)},
                       {"limited_by", r.limited_by_memory ? "memory" : "arithmetic"},
                       {"bandwidth_gb_per_second", r.bandwidth}});
    if (r.kind == "rows") results.back()["rows"] = r.rows;
  }
  if (!report.profiles.empty()) profiles_json = nlohmann::ordered_json::array();
  for (const Profile& profile : report.profiles) profiles_json.push_back(profile_json(profile));
  const Machine machine = describe_machine();
  nlohmann::ordered_json json = {
      {"model", report.model},
      {"results", results},
      {"load_seconds", report.load_seconds},
      {"peak_rss_bytes", report.complete ? report.peak_rss_bytes : peak_memory_bytes()}};
  if (report.complete) json["bandwidth_gb_per_second"] = report.bandwidth;
  json["int8_gops"] = report.int8_gops;
  json["bf16_gflops"] = report.bf16_gflops;
  if (!report.complete) json["interrupted"] = true;
  if (!profiles_json.is_null()) json["profiles"] = profiles_json;
  for (const SpecResult& r : report.spec_results) {
    json["speculation"].push_back({{"spec", report.spec},
                                   {"work", r.work},
                                   {"tokens", r.tokens},
                                   {"plain_tokens_per_second", r.plain},
                                   {"tokens_per_second", r.with},
                                   {"ratio", r.ratio},
                                   {"min", r.min},
                                   {"max", r.max},
                                   {"drafted_tokens", r.drafted},
                                   {"accepted_tokens", r.accepted}});
  }
  json["cpu_level"] = report.level;
  json["machine"] = {{"cpu", machine.cpu},
                     {"cores", machine.cores},
                     {"cpu_level", machine.cpu_level},
                     {"memory_bytes", machine.memory_bytes}};
  json["version"] = KVIKK_VERSION;
  json["commit"] = KVIKK_COMMIT;
  return json;
}

std::string setting(const Report& report) {
  return report.model.substr(report.model.rfind('/') + 1) + ", " + std::to_string(report.threads) +
         " threads, " + report.level + ", cache " + report.kv;
}

std::string table_head(const Report& report) {
  return setting(report) + ", loaded in " + seconds_text(report.load_seconds) + "\n\n" +
         "kind          depth   tokens     tok/s       min       max   of limit\n";
}

std::string table_line(const BenchResult& r) {
  std::string name = r.kind == "rows" ? std::to_string(r.rows) + " rows" : r.kind;
  name.resize(10, ' ');
  return name + align_right(count_text(r.depth), 9) + align_right(count_text(r.tokens), 9) +
         align_right(rate_text(r.median), 10) + align_right(rate_text(r.min), 10) +
         align_right(rate_text(r.max), 10) + align_right(rate_text(percent_of_limit(r)), 6) +
         (r.limited_by_memory ? "% memory" : "% arithmetic") + "\n";
}

std::string spec_head(const Report& report) {
  return "\n--spec " + report.spec.substr(report.spec.rfind('/') + 1) +
         "    plain tok/s   with     ratio     min     max   guessed  right\n";
}

std::string spec_line(const SpecResult& r) {
  std::string name = r.work;
  name.resize(14, ' ');
  const double right =
      r.drafted == 0 ? 0 : 100.0 * static_cast<double>(r.accepted) / static_cast<double>(r.drafted);
  return name + align_right(rate_text(r.plain), 12) + align_right(rate_text(r.with), 9) +
         align_right(fixed_text(r.ratio, 2), 8) + align_right(fixed_text(r.min, 2), 8) +
         align_right(fixed_text(r.max, 2), 8) + align_right(count_text(r.drafted), 10) +
         align_right(fixed_text(right, 0), 6) + "%\n";
}

std::string table_foot(const Report& report) {
  std::string profiles;
  for (const Profile& profile : report.profiles) profiles += profile_table(profile);
  return profiles + "\npeak memory " + bytes_text(report.peak_rss_bytes) + "; this machine reads " +
         rate_text(report.bandwidth) + " GB/s and computes " + rate_text(report.int8_gops) +
         " GOP/s in int8, " + rate_text(report.bf16_gflops) +
         " GFLOP/s in bf16.\nThe limit is the time to read what a step needs, or to compute it, "
         "whichever is longer.\n";
}

int32_t largest(const std::vector<int32_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// The cache must hold the deepest measurement, and one sequence for each row beside the base.
Status size_engine(const BenchPlan& plan, bool with_spec, EngineOptions& engine) {
  if (plan.depth.empty() || (largest(plan.prefill) == 0 && plan.decode == 0)) {
    return invalid_argument("nothing to measure: --prefill and --decode are 0");
  }
  constexpr int32_t kWarmUp = 64;
  int64_t tokens =
      int64_t{largest(plan.depth)} + std::max({largest(plan.prefill), plan.decode, kWarmUp}) + 1;
  if (with_spec) {
    tokens = std::max(tokens, static_cast<int64_t>(spec_context(static_cast<size_t>(plan.decode))));
  }
  TRY(fit_context(tokens, "this measurement needs", engine));
  engine.parallel = std::max(engine.parallel, largest(plan.rows) + 2);
  return ok_status();
}

// A prefill and some steps of decoding, at the largest depth; their trace goes to `file`.
Status profile_steps(Shell& shell, const BenchPlan& plan, Engine& engine, BenchSession& session,
                     OutputFile& file, std::vector<Profile>& profiles) {
  constexpr size_t kPhasesMax = size_t{1} << 18;
  constexpr int32_t kDecodeSteps = 16;
  const int threads = engine.compute().threads();
  PhaseLog prefill(threads, kPhasesMax);
  PhaseLog decode(threads, kPhasesMax);
  const int32_t tokens = largest(plan.prefill);
  const int32_t steps = std::min(plan.decode, kDecodeSteps);
  if (tokens > 0) {
    TRY(session.log_prefill(static_cast<size_t>(tokens), prefill));
    profiles.push_back(summarize("prefill", prefill, 1));
  }
  if (steps > 0) {
    TRY(session.log_decode(static_cast<size_t>(steps), decode));
    profiles.push_back(summarize("decode", decode, static_cast<size_t>(steps)));
  }
  if (prefill.full() || decode.full()) shell.note("the profile holds the beginning only");
  TRY(file.write(trace_json({{"prefill", &prefill}, {"decode", &decode}})));
  return file.close();
}

Status compare_spec(Shell& shell, const BenchPlan& plan, Engine& engine, bool json,
                    Report& report) {
  if (!json) TRY(shell.print(spec_head(report)));
  return measure_spec(
      engine, static_cast<size_t>(plan.decode), plan.repeat, [&shell] { return shell.go_on(); },
      [&](const SpecResult& result) {
        {
          std::lock_guard lock(report.mutex);
          report.spec_results.push_back(result);
        }
        return json ? ok_status() : shell.print(spec_line(result));
      });
}

// `trace` is null where no profile is wanted.
Status run_bench(Shell& shell, const BenchPlan& plan, Engine& engine, bool json, OutputFile* trace,
                 Report& report) {
  const size_t load_peak = peak_memory_bytes();
  if (!json) TRY(shell.print(table_head(report)));
  TRY_ASSIGN(MachineLimits limits,
             MachineLimits::measure(engine.compute().kernels(), engine.compute().pool()));
  {
    std::lock_guard lock(report.mutex);
    report.int8_gops = limits.int8_gops();
    report.bf16_gflops = limits.bf16_gflops();
  }
  BenchSession session(engine, limits, [&shell] { return shell.go_on(); });
  TRY(session.run(plan, [&](const BenchResult& result) {
    {
      std::lock_guard lock(report.mutex);
      report.results.push_back(result);
    }
    return json ? ok_status() : shell.print(table_line(result));
  }));
  if (!report.spec.empty() && plan.decode > 0) TRY(compare_spec(shell, plan, engine, json, report));
  std::vector<Profile> profiles;
  if (trace != nullptr) TRY(profile_steps(shell, plan, engine, session, *trace, profiles));
  const size_t peak = peak_memory_bytes() - MachineLimits::kProbeBytes;
  std::vector<double> bandwidths = {limits.measure_bandwidth(engine.compute().pool())};
  std::lock_guard lock(report.mutex);
  for (const BenchResult& r : report.results) bandwidths.push_back(r.bandwidth);
  report.profiles = std::move(profiles);
  report.peak_rss_bytes = std::max(peak, load_peak);
  report.bandwidth = median_of(std::move(bandwidths));
  report.complete = true;
  return ok_status();
}

Status write_plot(const Report& report, OutputFile& plot) {
  TRY(plot.write(plot_svg(report.results, setting(report))));
  return plot.close();
}

}  // namespace

Status verb_bench(Shell& shell, Arguments arguments) {
  ModelOptions model;
  BenchPlan plan;
  BenchOutput output;
  EngineOptions engine_options;
  Command command({"bench",
                   "",
                   "Measures speed: prefill of a prompt, decode of one sequence, and several rows "
                   "at once, each\nwith --depth tokens in the cache. Medians in tokens per second.",
                   {"kvikk bench -m smollm2-135m",
                    "kvikk bench --depth 0,4096,16384 --rows 1,4,8 --threads 2 --json"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(plan);
  command.add(output);
  command.add(engine_options, {"threads", "chunk", "kv", "weights", "spec", "cpu_level"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(validate(engine_options));
  // Guesses are a measurement of their own, for who asks; nothing else here has any.
  const bool with_spec = command.given("spec") && engine_options.spec != "none";
  TRY(size_engine(plan, with_spec, engine_options));
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  // Before anything is measured: a wrong path must not cost that time.
  TRY_ASSIGN(const std::unique_ptr<OutputFile> plot,
             OutputFile::open_if_named(output.plot, {path}));
  TRY_ASSIGN(const std::unique_ptr<OutputFile> trace,
             OutputFile::open_if_named(output.profile, {path}));
  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, path, engine_options));

  Report report;
  report.model = loaded.path;
  report.kv = loaded.engine->options().kv;
  report.level = loaded.engine->cpu_level();
  if (with_spec) report.spec = engine_options.spec;
  report.threads = loaded.engine->options().threads;
  report.load_seconds = loaded.load_seconds;
  const Status status = [&] {
    const LastWords words(shell.interrupts(), [&] {
      if (output.json) static_cast<void>(shell.print(json_line(report_json(report))).ok());
    });
    return run_bench(shell, plan, *loaded.engine, output.json, trace.get(), report);
  }();
  if (!status.ok() && status.code() != StatusCode::kCancelled) return status;
  TRY(shell.print(output.json       ? json_line(report_json(report))
                  : report.complete ? table_foot(report)
                                    : ""));
  TRY(status);
  return plot != nullptr ? write_plot(report, *plot) : ok_status();
}

}  // namespace kvikk
