#pragma once
// Numbers from text and to text, for people and for options.

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace kvikk {

// The whole text as a number; nothing if it is not one or does not fit.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

// The shortest text that reads back as the same number.
template <class T>
std::string number_text(T value) {
  char buffer[64];
  char* const end = buffer + sizeof buffer;
  if constexpr (std::is_floating_point_v<T>) {  // 1000000, not 1e+06
    constexpr T kWholeMax = 1e9;
    if (value >= -kWholeMax && value <= kWholeMax &&
        value == static_cast<T>(static_cast<int64_t>(value))) {
      return std::string(buffer, std::to_chars(buffer, end, static_cast<int64_t>(value)).ptr);
    }
  }
  return std::string(buffer, std::to_chars(buffer, end, value).ptr);
}

// 12345.6 -> "12,346"; 12.345 -> "12.3"; three digits at least.
std::string rate_text(double value);
// 98362432 -> "98.4 MB", in powers of 1000 as file sizes are sold.
std::string bytes_text(uint64_t bytes);
// 12345678 -> "12,345,678".
std::string count_text(uint64_t count);
// "0.213 s", "12.3 s".
std::string seconds_text(double seconds);
// With a fixed number of digits after the point.
std::string fixed_text(double value, int digits);
// Spaces before the text up to `width`; none where it is longer.
std::string align_right(std::string_view text, size_t width);

}  // namespace kvikk
