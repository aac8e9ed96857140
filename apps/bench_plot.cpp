#include "bench_plot.h"

#include <map>

#include "curves.h"

namespace kvikk {
namespace {

std::string series_name(const BenchResult& result) {
  if (result.kind == "prefill") return "prefill " + std::to_string(result.tokens);
  return result.kind == "rows" ? std::to_string(result.rows) + " rows" : result.kind;
}

}  // namespace

std::string plot_svg(const std::vector<BenchResult>& results, const std::string& title) {
  std::map<std::string, std::vector<std::pair<double, double>>> series;
  for (const BenchResult& result : results) {
    if (!(result.median > 0)) continue;
    series[series_name(result)].push_back({static_cast<double>(result.depth), result.median});
  }
  Curves curves;
  curves.x_title = "tokens in the cache";
  curves.y_title = "tokens/s";
  curves.y_logarithmic = true;
  for (auto& [name, points] : series) curves.lines.push_back({name, std::move(points)});
  return curves_svg(curves, title);
}

}  // namespace kvikk
