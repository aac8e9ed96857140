#pragma once
// Curves in a picture: a few series of points, axes, a legend.

#include <string>
#include <utility>
#include <vector>

namespace kvikk {

struct Curves {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  // x, y
  };
  std::vector<Line> lines;
  std::string x_title;
  std::string y_title;
  bool x_logarithmic = false;  // otherwise from 0; values must then be above 0
  bool y_logarithmic = false;
};

// An SVG document.
std::string curves_svg(const Curves& curves, const std::string& title);

}  // namespace kvikk
