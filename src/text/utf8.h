#pragma once
// UTF-8 for everything that reads or writes text. Input from outside may hold any bytes; inside,
// text is well-formed. Each malformed sequence becomes one U+FFFD by the "maximal subpart" practice
// of the Unicode Standard (chapter 3.9), which is what the reference tokenizer's host languages do
// too.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvikk {

constexpr char32_t kReplacementCharacter = 0xFFFD;

struct DecodedChar {
  char32_t code_point;  // kReplacementCharacter where the bytes are malformed
  uint32_t bytes;       // consumed, at least 1
  bool valid;
};

// Decodes the character at `p`, p < end.
DecodedChar decode_utf8(const char* p, const char* end);

// As decode_utf8, for text that is known to be well-formed.
inline DecodedChar decode_valid_utf8(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2, true};
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3, true};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4, true};
}

// True for the second and later bytes of a character.
inline bool is_utf8_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// `code_point` is a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

bool is_valid_utf8(std::string_view text);
std::string replace_invalid_utf8(std::string_view text);

// How many bytes at the end of `text` begin a character that later bytes could complete: 0 to 3.
size_t incomplete_utf8_tail(std::string_view text);

}  // namespace kvikk
