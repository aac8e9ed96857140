#include "load_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "curves.h"
#include "kvikk_commit.h"
#include "machine.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;
using Points = std::vector<std::pair<double, double>>;

struct Wait {
  const char* name;
  std::vector<double> LoadFigures::*values;
};
constexpr Wait kWaits[] = {{"ttft", &LoadFigures::ttft},
                           {"itl", &LoadFigures::itl},
                           {"tpot", &LoadFigures::tpot},
                           {"e2e", &LoadFigures::e2e}};
constexpr double kParts[] = {0.5, 0.9, 0.95, 0.99};

// The smallest value that this part of all does not exceed; NaN of none.
double quantile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : sum / static_cast<double>(values.size());
}

double rate(size_t count, const LoadFigures& figures) {
  return figures.seconds > 0 ? static_cast<double>(count) / figures.seconds : 0.0;
}

std::string milliseconds(double seconds) {
  return std::isnan(seconds) ? "-" : rate_text(seconds * 1000);
}

Json number_or_null(double value) { return std::isnan(value) ? Json() : Json(value); }

Json run_json(const LoadFigures& f) {
  Json json = {{"clients", f.clients == 0 ? Json() : Json(f.clients)},
               {"requests", f.requests},
               {"failed", f.failed},
               {"seconds", f.seconds},
               {"sending_seconds", f.sending_seconds},
               {"prompt_tokens", f.prompt_tokens},
               {"cached_tokens", f.cached_tokens},
               {"completion_tokens", f.completion_tokens},
               {"requests_per_second", rate(f.requests - f.failed, f)},
               {"output_tokens_per_second", rate(f.completion_tokens, f)},
               {"goodput_requests_per_second", rate(f.within_limits, f)},
               {"requests_within_limits", f.within_limits}};
  for (const Wait& wait : kWaits) {
    const std::vector<double>& values = f.*wait.values;
    Json figures = {{"mean", number_or_null(mean(values))}};
    for (const double part : kParts) {
      figures["p" + fixed_text(part * 100, 0)] = number_or_null(quantile(values, part));
    }
    figures["max"] = number_or_null(quantile(values, 1));
    json[std::string(wait.name) + "_seconds"] = std::move(figures);
  }
  if (!f.first_error.empty()) json["first_error"] = f.first_error;
  if (f.interrupted) json["interrupted"] = true;
  return json;
}

// Of one run: a logarithmic axis of time, and the part of the waits that end by then.
Curves waits_of(const LoadFigures& figures) {
  constexpr size_t kPoints = 200;
  Curves curves;
  curves.x_title = "ms";
  curves.y_title = "% of waits";
  curves.x_logarithmic = true;
  for (const Wait& wait : kWaits) {
    const std::vector<double>& values = figures.*wait.values;
    if (values.empty()) continue;
    Points points;
    const size_t step = std::max<size_t>(1, values.size() / kPoints);
    for (size_t i = 0; i < values.size(); i += step) {
      const double part = static_cast<double>(i + 1) / static_cast<double>(values.size());
      points.push_back({std::max(values[i] * 1000, 0.01), 100 * part});
    }
    points.push_back({std::max(values.back() * 1000, 0.01), 100});
    curves.lines.push_back({wait.name, std::move(points)});
  }
  return curves;
}

// Of several: what all users get over what one gets.
Curves frontier(const std::vector<LoadFigures>& runs) {
  Curves curves;
  curves.x_title = "tokens/s of one user (median)";
  curves.y_title = "tokens/s of all";
  Points all;
  for (const LoadFigures& f : runs) {
    const double each = quantile(f.tpot, 0.5);
    if (!(each > 0)) continue;
    all.push_back({1 / each, rate(f.completion_tokens, f)});
  }
  if (!all.empty()) curves.lines.push_back({"all requests", std::move(all)});
  return curves;
}

}  // namespace

LoadFigures summarize(std::vector<LoadResult> results, double ttft_max, double tpot_max) {
  LoadFigures f;
  f.requests = results.size();
  double first = std::numeric_limits<double>::max(), last_sent = 0, last = 0;
  for (const LoadResult& r : results) {
    first = std::min(first, r.sent_seconds);
    last_sent = std::max(last_sent, r.sent_seconds);
    last = std::max(last, r.end_seconds);
    if (!r.good()) {
      ++f.failed;
      if (f.first_error.empty()) f.first_error = r.error;
      continue;
    }
    f.prompt_tokens += r.prompt_tokens;
    f.cached_tokens += r.cached_tokens;
    f.completion_tokens += r.completion_tokens;
    const std::vector<double>& pieces = r.piece_seconds;
    const double ttft = pieces.front() - r.sent_seconds;
    f.ttft.push_back(ttft);
    f.e2e.push_back(r.end_seconds - r.sent_seconds);
    for (size_t i = 1; i < pieces.size(); ++i) f.itl.push_back(pieces[i] - pieces[i - 1]);
    const size_t tokens = r.completion_tokens > 0 ? r.completion_tokens : pieces.size();
    double tpot = 0;
    if (tokens > 1) {
      tpot = (pieces.back() - pieces.front()) / static_cast<double>(tokens - 1);
      f.tpot.push_back(tpot);
    }
    if (ttft <= ttft_max && tpot <= tpot_max) ++f.within_limits;
  }
  f.seconds = std::max(0.0, last - first);
  f.sending_seconds = std::max(0.0, last_sent - first);
  for (const Wait& wait : kWaits) std::sort((f.*wait.values).begin(), (f.*wait.values).end());
  return f;
}

std::string load_table(const LoadFigures& f) {
  std::string text =
      f.clients == 0 ? "requests at their times" : std::to_string(f.clients) + " clients";
  text += ": " + count_text(f.requests) + " requests in " + seconds_text(f.seconds) + ", " +
          rate_text(rate(f.completion_tokens, f)) + " tokens/s out, " +
          rate_text(rate(f.prompt_tokens, f)) + " tokens/s in (" + count_text(f.cached_tokens) +
          " of " + count_text(f.prompt_tokens) + " cached)\ngoodput " +
          fixed_text(rate(f.within_limits, f), 2) + " requests/s: " + count_text(f.within_limits) +
          " within the limits\n";
  if (f.failed > 0) text += count_text(f.failed) + " failed: " + f.first_error + "\n";
  text += "ms           mean       p50       p90       p95       p99       max\n";
  for (const Wait& wait : kWaits) {
    const std::vector<double>& values = f.*wait.values;
    std::string name = wait.name;
    name.resize(7, ' ');
    text += name + align_right(milliseconds(mean(values)), 10);
    for (const double part : kParts) text += align_right(milliseconds(quantile(values, part)), 10);
    text += align_right(milliseconds(quantile(values, 1)), 10) + "\n";
  }
  return text + "\n";
}

Json load_json(const std::vector<LoadFigures>& runs, const LoadOptions& options) {
  Json list = Json::array();
  for (const LoadFigures& run : runs) list.push_back(run_json(run));
  const Machine machine = describe_machine();
  return {{"results", std::move(list)},
          {"ttft_limit_seconds", options.ttft_ms / 1000},
          {"tpot_limit_seconds", options.tpot_ms / 1000},
          {"trace", options.trace.empty() ? Json() : Json(options.trace)},
          {"rate", options.rate},
          {"burst", options.burst},
          {"seed", options.seed},
          {"machine", {{"cpu", machine.cpu}, {"cores", machine.cores}}},
          {"version", KVIKK_VERSION},
          {"commit", KVIKK_COMMIT}};
}

std::string load_svg(const std::vector<LoadFigures>& runs, const std::string& title) {
  return curves_svg(runs.size() == 1 ? waits_of(runs.front()) : frontier(runs), title);
}

}  // namespace kvikk
