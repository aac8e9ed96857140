#include "curves.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "svg.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 70, kRight = 610, kTop = 50, kBottom = 390;
constexpr int kLinearSteps = 4;
constexpr std::array<const char*, 8> kColours = {"#1f6feb", "#d1242f", "#1a7f37", "#9a6700",
                                                 "#8250df", "#bf3989", "#0a7ea4", "#57606a"};

// From values to places between `from` and `to`. Whole decades where it is logarithmic.
struct Axis {
  bool logarithmic = false;
  double low = 0, high = 1;  // decades, or values
  double from = 0, to = 1;

  double place(double value) const {
    const double at = logarithmic ? std::log10(value) : value;
    return from + (at - low) / (high - low) * (to - from);
  }
  std::vector<double> marks() const {
    std::vector<double> values;
    if (logarithmic) {
      for (double decade = low; decade <= high; decade += 1) values.push_back(std::pow(10, decade));
    } else {
      for (int i = 0; i <= kLinearSteps; ++i) values.push_back(high * i / kLinearSteps);
    }
    return values;
  }
};

template <class Of>
Axis make_axis(const Curves& curves, bool logarithmic, double from, double to, Of of) {
  double least = 1e300, most = 0;
  for (const Curves::Line& line : curves.lines) {
    for (const auto& point : line.points) {
      least = std::min(least, of(point));
      most = std::max(most, of(point));
    }
  }
  Axis axis{logarithmic, 0, most > 0 ? most : 1, from, to};
  if (!logarithmic) return axis;
  axis.low = std::floor(std::log10(least));
  axis.high = std::max(std::ceil(std::log10(most)), axis.low + 1);
  return axis;
}

std::string mark_text(const Axis& axis, double value) {
  return axis.logarithmic ? number_text(value) : fixed_text(value, axis.high < 10 ? 2 : 0);
}

std::string axes(const Axis& x, const Axis& y, const Curves& curves) {
  std::string svg;
  for (const double value : y.marks()) {
    svg += line_at(kLeft, y.place(value), kRight, y.place(value));
    svg += text_at(kLeft - 8, y.place(value) + 4, "end", mark_text(y, value));
  }
  for (const double value : x.marks()) {
    svg += line_at(x.place(value), kTop, x.place(value), kBottom);
    svg += text_at(x.place(value), kBottom + 18, "middle", mark_text(x, value));
  }
  return svg + text_at((kLeft + kRight) / 2, kBottom + 38, "middle", curves.x_title) +
         text_at(kLeft, kTop - 10, "middle", curves.y_title);
}

std::string curve(const Axis& x, const Axis& y, const Curves::Line& line,
                  const std::string& colour) {
  constexpr size_t kDotsMax = 40;
  std::string path, dots;
  for (const auto& point : line.points) {
    const std::string at_x = fixed_text(x.place(point.first), 1);
    const std::string at_y = fixed_text(y.place(point.second), 1);
    path += (path.empty() ? "" : " ") + at_x + "," + at_y;
    dots += "<circle cx=\"" + at_x + "\" cy=\"" + at_y + "\" r=\"3\" fill=\"" + colour + "\"/>\n";
  }
  if (line.points.size() > kDotsMax) dots.clear();
  return "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + colour +
         "\" stroke-width=\"2\"/>\n" + dots;
}

}  // namespace

std::string curves_svg(const Curves& curves, const std::string& title) {
  std::string svg = svg_head(kWidth, kHeight) + text_at(kWidth / 2, 22, "middle", title);
  if (curves.lines.empty()) return svg + "</svg>\n";
  const Axis x = make_axis(curves, curves.x_logarithmic, kLeft, kRight,
                           [](const auto& point) { return point.first; });
  const Axis y = make_axis(curves, curves.y_logarithmic, kBottom, kTop,
                           [](const auto& point) { return point.second; });
  svg += axes(x, y, curves);
  for (size_t i = 0; i < curves.lines.size(); ++i) {
    const std::string colour = kColours[i % kColours.size()];
    const double at = kTop + 18.0 * static_cast<double>(i);
    svg += curve(x, y, curves.lines[i], colour);
    svg += rect_at(kRight + 16, at - 9, 10, 10, colour);
    svg += text_at(kRight + 32, at, "start", curves.lines[i].name);
  }
  return svg + "</svg>\n";
}

}  // namespace kvikk
