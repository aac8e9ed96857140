#pragma once
// Unicode normalisation form C, which some vocabularies apply before anything else.

#include <string>
#include <string_view>

namespace kvikk {

// True where to_nfc would change nothing for a reason that is quick to see; most text is so.
bool is_surely_nfc(std::string_view text);

// `text` is well-formed UTF-8. Linear in its length, however many marks pile up on one letter.
std::string to_nfc(std::string_view text);

}  // namespace kvikk
