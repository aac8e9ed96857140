#pragma once
// Python's view of text over UTF-8 bytes: code points, its classes of characters, its case
// mappings. A byte that is no part of valid UTF-8 counts as one code point (0xDC00 + byte) and is
// written back as it came, so any input can be handled and none is changed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvikk::jinja {

struct CodePoint {
  uint32_t value;
  uint32_t bytes;
};
CodePoint code_point_at(std::string_view text, size_t at);      // at < text.size()
CodePoint code_point_before(std::string_view text, size_t at);  // 0 < at <= text.size()
size_t count_code_points(std::string_view text);
// Where code point number `index` starts; text.size() past the end.
size_t byte_offset(std::string_view text, size_t index);
void append_code_point(std::string& text, uint32_t value);

bool is_space(uint32_t c);
bool is_alpha(uint32_t c);
bool is_decimal(uint32_t c);
bool is_digit(uint32_t c);
bool is_numeric(uint32_t c);
bool is_word(uint32_t c);  // \w
bool is_lower(uint32_t c);
bool is_upper(uint32_t c);
bool is_title(uint32_t c);
bool is_printable(uint32_t c);
bool is_identifier_start(uint32_t c);
bool is_identifier_part(uint32_t c);
int decimal_value(uint32_t c);  // -1 where it is no decimal digit

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped_case(std::string_view text);
std::string to_casefold(std::string_view text);

// Where `needle` first comes at or after `from`, npos where it does not. Linear in the worst case,
// which string_view::find is not.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace kvikk::jinja
