#include "text/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kvikk {

std::string fixed_text(double value, int digits) {
  std::array<char, 400> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, digits);
  return std::string(buffer.data(), result.ptr);
}

std::string rate_text(double value) {
  if (!std::isfinite(value)) return "-";
  if (value >= 1000.0) return count_text(static_cast<uint64_t>(std::llround(value)));
  return fixed_text(value, value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2);
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  return fixed_text(value, digits) + " " + kUnits[unit];
}

std::string count_text(uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string seconds_text(double seconds) {
  return fixed_text(seconds, seconds < 1.0 ? 3 : seconds < 100.0 ? 1 : 0) + " s";
}

std::string align_right(std::string_view text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + std::string(text);
}

}  // namespace kvikk
