#pragma once
// The Unicode normalisation forms, which some vocabularies apply before anything else.

#include <string>
#include <string_view>

namespace kvikk {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// True where normalize_unicode would change nothing for a reason that is quick to see; most text is
// so.
bool is_surely_normalized(std::string_view text, UnicodeForm form);

// `text` is well-formed UTF-8. Linear in its length, however many marks pile up on one letter.
std::string normalize_unicode(std::string_view text, UnicodeForm form);

}  // namespace kvikk
