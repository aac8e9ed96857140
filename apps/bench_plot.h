#pragma once
// Speed over depth as a picture.

#include <string>
#include <vector>

#include "bench_measure.h"

namespace kvikk {

// An SVG document: one line for each kind of result, depth to the right, tokens per second upwards
// on a logarithmic scale.
std::string plot_svg(const std::vector<BenchResult>& results, const std::string& title);

}  // namespace kvikk
