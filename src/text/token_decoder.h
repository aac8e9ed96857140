#pragma once
// From tokens as the file writes them back to text: the steps of a tokenizer.json's decoder. Each
// step looks at one token, and whether it is the first of the text, so text can be streamed; a
// published step that looks further is refused.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/growth_limit.h"
#include "text/text_pattern.h"

namespace kvikk {

class TokenDecoder {
 public:
  static constexpr size_t kStepsMax = 32;
  static constexpr size_t kGrowthMax = 64;  // of a token, over all steps

  // kUnsupported past kStepsMax and kGrowthMax, and after add_fuse or add_byte_level where noted.
  Status add_replace(TextPattern pattern, std::string_view replacement);  // not after
  Status add_byte_fallback();                                             // not after
  Status add_byte_level();                                                // not after
  // Every `mark` becomes a space, those of the first token nothing where drop_first is set.
  // Not after either; kUnsupported also where the mark is empty or long (TextPattern::literal).
  Status add_metaspace(std::string_view mark, bool drop_first);
  // A space before each token but the first, unless it begins with `prefix`, which goes.
  Status add_wordpiece(std::string_view prefix, bool cleanup);  // not after
  // Up to `start` times `content` at the begin and `stop` times at the end go: of every token, or
  // after add_fuse of the whole text, and then stop is 0 and start at most 1.
  Status add_strip(char32_t content, size_t start, size_t stop);
  Status add_fuse();
  // What the reference library does without a decoder: a space between tokens.
  Status add_spaces_between();

  // The bytes that a token, written so in the file, stands for.
  std::string decode(std::string_view written, bool is_first) const;

  // The text begins without one space (or other character) that decode() gives.
  bool drops_first_character() const { return drops_first_; }
  char32_t first_character() const { return first_character_; }

  // Whether decode() can differ for the first token.
  bool depends_on_first() const;

 private:
  enum class Kind { kReplace, kByteFallback, kByteLevel, kMetaspace, kWordPiece, kStrip, kSpaces };
  struct Step {
    Kind kind = Kind::kReplace;
    TextPattern pattern;
    std::string text;   // replacement or prefix
    bool flag = false;  // drop_first, cleanup
    char32_t content = 0;
    size_t start = 0;
    size_t stop = 0;
  };
  Status add(Step step);
  static std::string apply(const Step& step, std::string token, bool is_first);

  std::vector<Step> steps_;
  GrowthLimit growth_{kGrowthMax};
  bool fused_ = false;
  bool drops_first_ = false;
  char32_t first_character_ = ' ';
};

}  // namespace kvikk
