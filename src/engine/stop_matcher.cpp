#include "engine/stop_matcher.h"

#include <algorithm>

namespace kvikk {

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  size_t earliest = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found >= earliest) continue;
    earliest = found;
    stop_ = stop;
  }
  if (earliest != std::string::npos) {
    stopped_ = true;
    std::string certain = held_.substr(0, earliest);
    held_.clear();
    return certain;
  }
  // The longest tail that begins a stop string stays.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        keep = n;
        break;
      }
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopMatcher::finish() {
  std::string rest = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace kvikk
