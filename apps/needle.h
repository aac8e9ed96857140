#pragma once
// Needles in a haystack: sentences that state a number each, hidden in a long text, and a question
// for each of them, asked on its own after the whole text.

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace kvikk {

inline constexpr size_t kNeedlesMax = 20;        // in one haystack
inline constexpr size_t kNeedleLengthMin = 256;  // tokens of a haystack

struct Needle {
  double depth = 0;  // 0: at the beginning, 1: at the end
  bool found = false;
  std::string answer;
};

// Tokens that a haystack of `length` needs of the context, the answer included.
size_t needle_context(size_t length);

// Hides `count` needles, the first at the beginning and the last at the end, in as much of
// `haystack` as makes a prompt of about `length` tokens, and asks for each. Greedy; a needle is
// found if the answer has its number. Errors: kInvalidArgument (a haystack that is too short),
// those of `go_on`, of the engine.
Result<std::vector<Needle>> find_needles(Engine& engine, const std::string& haystack, size_t length,
                                         size_t count, const std::function<Status()>& go_on);

}  // namespace kvikk
