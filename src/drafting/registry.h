#pragma once
// The drafters by name, and the option that chooses one.

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "drafting/drafter.h"

namespace kvikk {

// What the option spec says.
struct SpecChoice {
  std::string drafter;  // empty: none
  std::string model;    // of the drafter "model": which
};

// "none" or empty, "auto", "ngram", "suffix" or "model:MODEL". Errors: kInvalidArgument with the
// names that there are.
Result<SpecChoice> parse_spec(std::string_view text);

// A drafter that needs nothing but the tokens. Null for none and for "model".
std::unique_ptr<Drafter> make_token_drafter(const SpecChoice& choice);

}  // namespace kvikk
