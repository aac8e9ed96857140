// The trie is the double array of the darts-clone library: a unit's low bits say where its children
// are, bit 8 whether a value belongs to it; a child's low byte repeats the byte that leads to it.
#include "text/charsmap.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace kvikk {
namespace {

bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

Result<Charsmap> Charsmap::create(std::string_view bytes) {
  if (bytes.size() > kBytesMax) {
    return unsupported("the precompiled normalisation has " + std::to_string(bytes.size()) +
                       " bytes; at most " + std::to_string(kBytesMax) + " are supported");
  }
  if (bytes.size() < 4) return damaged("the precompiled normalisation has no header");
  const size_t trie_bytes = read_u32(bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes.size() - 4) {
    return damaged("the precompiled normalisation says that its trie has " +
                   std::to_string(trie_bytes) + " bytes; it has " + std::to_string(bytes.size()) +
                   " in all");
  }
  Charsmap map;
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(read_u32(bytes, at));
  map.replacements_ = bytes.substr(4 + trie_bytes);
  if (!map.replacements_.empty() && map.replacements_.back() != '\0') {
    return damaged("the precompiled normalisation does not end with a zero byte");
  }
  if (!is_valid_utf8(map.replacements_)) {
    return damaged("the precompiled normalisation holds replacements that are not UTF-8");
  }
  for (size_t begin = 0; begin < map.replacements_.size();) {
    const size_t length = map.replacements_.find('\0', begin) - begin;
    if (length > kReplacementBytesMax) {
      return unsupported("the precompiled normalisation has a replacement of " +
                         std::to_string(length) + " bytes");
    }
    map.growth_ = std::max(map.growth_, length);
    begin += length + 1;
  }
  return map;
}

bool Charsmap::transform(std::string_view chunk, std::string_view* replacement) const {
  size_t node = offset_of(units_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return false;
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return false;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return false;
    const size_t begin = value_of(units_[node]);
    if (begin >= replacements_.size()) return false;
    if (is_utf8_continuation(replacements_[begin])) return false;
    *replacement = replacements_.c_str() + begin;  // to the zero byte
    return true;
  }
  return false;
}

std::string Charsmap::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  const char* const end = text.data() + text.size();
  std::string_view replacement;
  for (const char* p = text.data(); p < end;) {
    // The grapheme cluster [p, q).
    DecodedChar c = decode_valid_utf8(p);
    const char* q = p + c.bytes;
    utf8proc_int32_t state = 0;
    while (q < end) {
      const DecodedChar following = decode_valid_utf8(q);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code_point),
                                           static_cast<utf8proc_int32_t>(following.code_point),
                                           &state)) {
        break;
      }
      q += following.bytes;
      c = following;
    }
    constexpr ptrdiff_t kWholeBytesMax = 5;
    if (q - p <= kWholeBytesMax && transform(std::string_view(p, q - p), &replacement)) {
      out += replacement;
      p = q;
      continue;
    }
    while (p < q) {
      const std::string_view one(p, decode_valid_utf8(p).bytes);
      out += transform(one, &replacement) ? replacement : one;
      p += one.size();
    }
  }
  return out;
}

}  // namespace kvikk
