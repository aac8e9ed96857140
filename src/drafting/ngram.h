#pragma once
// Prompt lookup: when the last few tokens stood in the text before, what followed them the last
// time may follow again.

#include <memory>

#include "drafting/drafter.h"

namespace kvikk {

std::unique_ptr<Drafter> make_ngram_drafter();

}  // namespace kvikk
