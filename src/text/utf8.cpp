// Decoding follows table 3-7 of the Unicode Standard: the range of the second byte depends on the
// first, which excludes overlong forms, surrogates and anything above U+10FFFF.
#include "text/utf8.h"

#include <cstring>

namespace kvikk {
namespace {

struct LeadByte {
  uint32_t length;    // of the whole character; 0: not a lead byte
  unsigned char low;  // range of the second byte
  unsigned char high;
};

LeadByte lead_byte(unsigned char c) {
  if (c < 0x80) return {1, 0, 0};
  if (c < 0xC2) return {0, 0, 0};
  if (c < 0xE0) return {2, 0x80, 0xBF};
  if (c == 0xE0) return {3, 0xA0, 0xBF};
  if (c == 0xED) return {3, 0x80, 0x9F};
  if (c < 0xF0) return {3, 0x80, 0xBF};
  if (c == 0xF0) return {4, 0x90, 0xBF};
  if (c < 0xF4) return {4, 0x80, 0xBF};
  if (c == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of the longest prefix of a well-formed character at `p`, and whether it is complete.
struct Prefix {
  uint32_t bytes;
  bool complete;
};

Prefix longest_prefix(const char* p, const char* end) {
  const LeadByte lead = lead_byte(static_cast<unsigned char>(*p));
  if (lead.length <= 1) return {1, lead.length == 1};
  uint32_t n = 1;
  while (n < lead.length && p + n < end) {
    const auto c = static_cast<unsigned char>(p[n]);
    const unsigned char low = n == 1 ? lead.low : 0x80;
    const unsigned char high = n == 1 ? lead.high : 0xBF;
    if (c < low || c > high) break;
    ++n;
  }
  return {n, n == lead.length};
}

bool is_ascii_block(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

DecodedChar decode_utf8(const char* p, const char* end) {
  const Prefix prefix = longest_prefix(p, end);
  if (!prefix.complete) return {kReplacementCharacter, prefix.bytes, false};
  return decode_valid_utf8(p);
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto c = static_cast<uint32_t>(code_point);
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    if (end - p >= 8 && is_ascii_block(p)) {
      p += 8;
      continue;
    }
    const Prefix prefix = longest_prefix(p, end);
    if (!prefix.complete) return false;
    p += prefix.bytes;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Prefix prefix = longest_prefix(p, end);
    if (prefix.complete) {
      out.append(p, prefix.bytes);
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    p += prefix.bytes;
  }
  return out;
}

size_t incomplete_utf8_tail(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const char* p = end - n;
    if (is_utf8_continuation(*p)) continue;
    const Prefix prefix = longest_prefix(p, end);
    const bool open = !prefix.complete && prefix.bytes == n && lead_byte(*p).length > n;
    return open ? n : 0;
  }
  return 0;
}

}  // namespace kvikk
