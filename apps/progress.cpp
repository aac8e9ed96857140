#include "progress.h"

#include <algorithm>

#include "text/numbers.h"

namespace kvikk {
namespace {

constexpr std::chrono::milliseconds kPatience(300);  // shorter work shows nothing
constexpr std::chrono::milliseconds kInterval(100);
constexpr size_t kBarWidth = 24;

}  // namespace

Progress::Progress(Shell& shell, std::string label, bool unit_bytes)
    : shell_(shell),
      label_(std::move(label)),
      unit_bytes_(unit_bytes),
      next_(Clock::now() + kPatience) {}

Progress::~Progress() {
  if (visible_) shell_.message("\r\033[K");
}

void Progress::set_label(std::string label) { label_ = std::move(label); }

void Progress::show(uint64_t done, uint64_t total) {
  if (!shell_.stderr_terminal() || total == 0) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  visible_ = true;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<size_t>(part * static_cast<double>(kBarWidth));
  std::string line = "\r\033[K" + label_ + " [" + std::string(full, '#') +
                     std::string(kBarWidth - full, '.') + "] " + fixed_text(100.0 * part, 0) + "%";
  if (unit_bytes_) line += " of " + bytes_text(total);
  shell_.message(line);
}

}  // namespace kvikk
