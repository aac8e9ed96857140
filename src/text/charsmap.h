#pragma once
// SentencePiece's compiled normalisation: a double-array trie from character sequences to their
// replacements ("precompiled_charsmap"). Applied as the reference library does it: to each grapheme
// cluster of at most 5 bytes as a whole, else to each character.
//
// Layout: u32 bytes of the trie, little-endian; its units, u32 each; the replacements, each ended
// by a zero byte.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvikk {

class Charsmap {
 public:
  static constexpr size_t kBytesMax = size_t{1} << 26;
  static constexpr size_t kReplacementBytesMax = 255;

  // kDamaged where sizes or offsets contradict each other.
  static Result<Charsmap> create(std::string_view bytes);

  // How many times its bytes normalize() can make of a text.
  size_t growth() const { return growth_; }

  // `text` is well-formed UTF-8; so is the result.
  std::string normalize(std::string_view text) const;

 private:
  // The replacement of the shortest prefix of `chunk` that has one; false where none has.
  bool transform(std::string_view chunk, std::string_view* replacement) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
  size_t growth_ = 1;
};

}  // namespace kvikk
