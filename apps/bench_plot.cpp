#include "bench_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "svg.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 70, kRight = 610, kTop = 50, kBottom = 390;
constexpr std::array<const char*, 8> kColours = {"#1f6feb", "#d1242f", "#1a7f37", "#9a6700",
                                                 "#8250df", "#bf3989", "#0a7ea4", "#57606a"};

using Series = std::map<std::string, std::vector<std::pair<double, double>>>;

std::string series_name(const BenchResult& result) {
  if (result.kind == "prefill") return "prefill " + std::to_string(result.tokens);
  return result.kind == "rows" ? std::to_string(result.rows) + " rows" : result.kind;
}

// From depth and speed to places in the picture. Whole decades upwards.
struct Scale {
  double depth_max = 1;
  double low = 0, high = 1;  // decades

  double x(double depth) const { return kLeft + depth / depth_max * (kRight - kLeft); }
  double y(double speed) const {
    return kBottom - (std::log10(speed) - low) / (high - low) * (kBottom - kTop);
  }
};

Scale make_scale(const Series& series) {
  double depth = 1, slowest = 1e300, fastest = 0;
  for (const auto& [name, points] : series) {
    for (const auto& [x, y] : points) {
      depth = std::max(depth, x);
      slowest = std::min(slowest, y);
      fastest = std::max(fastest, y);
    }
  }
  Scale scale;
  scale.depth_max = depth;
  scale.low = std::floor(std::log10(slowest));
  scale.high = std::max(std::ceil(std::log10(fastest)), scale.low + 1);
  return scale;
}

std::string axes(const Scale& scale) {
  std::string svg;
  for (double decade = scale.low; decade <= scale.high; decade += 1) {
    const double y = scale.y(std::pow(10.0, decade));
    svg += line_at(kLeft, y, kRight, y);
    svg += text_at(kLeft - 8, y + 4, "end", number_text(std::pow(10.0, decade)));
  }
  for (int i = 0; i <= 4; ++i) {
    const double depth = scale.depth_max * i / 4.0;
    svg += line_at(scale.x(depth), kTop, scale.x(depth), kBottom);
    svg += text_at(scale.x(depth), kBottom + 18, "middle", fixed_text(depth, 0));
  }
  return svg + text_at((kLeft + kRight) / 2, kBottom + 38, "middle", "tokens in the cache") +
         text_at(kLeft, kTop - 10, "middle", "tokens/s");
}

std::string curve(const Scale& scale, const std::vector<std::pair<double, double>>& points,
                  const std::string& colour) {
  std::string path, dots;
  for (const auto& [depth, speed] : points) {
    const std::string x = fixed_text(scale.x(depth), 1);
    const std::string y = fixed_text(scale.y(speed), 1);
    path += (path.empty() ? "" : " ") + x + "," + y;
    dots += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3\" fill=\"" + colour + "\"/>\n";
  }
  return "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + colour +
         "\" stroke-width=\"2\"/>\n" + dots;
}

}  // namespace

std::string plot_svg(const std::vector<BenchResult>& results, const std::string& title) {
  Series series;
  for (const BenchResult& result : results) {
    if (!(result.median > 0)) continue;
    series[series_name(result)].push_back({static_cast<double>(result.depth), result.median});
  }
  std::string svg = svg_head(kWidth, kHeight) + text_at(kWidth / 2, 22, "middle", title);
  if (!series.empty()) {
    const Scale scale = make_scale(series);
    svg += axes(scale);
    size_t index = 0;
    for (const auto& [name, points] : series) {
      const std::string colour = kColours[index % kColours.size()];
      const double y = kTop + 18.0 * static_cast<double>(index);
      svg += curve(scale, points, colour);
      svg += rect_at(kRight + 16, y - 9, 10, 10, colour);
      svg += text_at(kRight + 32, y, "start", name);
      ++index;
    }
  }
  return svg + "</svg>\n";
}

}  // namespace kvikk
