#pragma once
// What a pipeline does to plain text before it is cut: a list of steps, those of a published
// tokenizer.json.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/charsmap.h"
#include "text/growth_limit.h"
#include "text/text_arena.h"
#include "text/text_pattern.h"
#include "text/unicode_form.h"

namespace kvikk {

class Normalizer {
 public:
  static constexpr size_t kStepsMax = 64;
  static constexpr size_t kPrependBytesMax = 256;
  static constexpr size_t kGrowthMax = 4096;  // over all steps, prefixes apart

  struct Bert {
    bool clean_text = true;
    bool handle_chinese_chars = true;
    bool strip_accents = true;
    bool lowercase = true;
  };

  Status add_form(UnicodeForm form);
  Status add_lowercase();
  Status add_strip(bool left, bool right);
  Status add_strip_accents();  // combining marks go
  Status add_nmt();
  Status add_bert(Bert options);
  Status add_replace(TextPattern pattern, std::string_view replacement);
  Status add_prepend(std::string_view prefix);  // to texts that are not empty
  Status add_charsmap(Charsmap charsmap);
  Status add_write_bytes();
  // For vocabularies that write a plain space for U+2581 inside (piece_bpe.h): the reverse of the
  // usual replacement, after a space in front where `prefix` is set.
  Status add_plain_spaces(bool prefix);

  bool writes_bytes() const;

  // `text` is well-formed UTF-8. The result is (a part of) `text` itself where nothing changes, and
  // otherwise in `arena`.
  std::string_view normalize(std::string_view text, TextArena* arena) const;
  // Whether the first character of `text`, which is not empty, has a part in the result.
  bool keeps_first(std::string_view text) const;

 private:
  enum class Kind {
    kForm,
    kLowercase,
    kStrip,
    kStripAccents,
    kNmt,
    kBert,
    kReplace,
    kPrepend,
    kCharsmap,
    kWriteBytes,
    kPlainSpaces,
  };
  struct Step {
    Kind kind = Kind::kForm;
    UnicodeForm form = UnicodeForm::kNfc;
    bool left = false;
    bool right = false;
    Bert bert;
    TextPattern pattern;
    std::string text;  // replacement or prefix
    std::shared_ptr<const Charsmap> charsmap;
  };

  // `growth`: how many times its bytes the step can make of a text.
  Status add(Step step, size_t growth);
  Status append(Step step);
  static std::string_view apply(const Step& step, std::string_view text, TextArena* arena);

  std::vector<Step> steps_;
  GrowthLimit growth_{kGrowthMax};
};

}  // namespace kvikk
