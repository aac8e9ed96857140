#pragma once
// Suffix decoding (arXiv 2411.04975): a tree of everything that stood in the text, with counts. The
// longest end of the text that stood there before says what may follow, and how often it did.

#include <memory>

#include "drafting/drafter.h"

namespace kvikk {

std::unique_ptr<Drafter> make_suffix_drafter();

}  // namespace kvikk
