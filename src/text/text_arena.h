#pragma once
// Texts that a pipeline makes on its way from input to tokens. They stay where they are until the
// end of one encode call, because the cache of pieces points into them.

#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace kvikk {

class TextArena {
 public:
  std::string_view keep(std::string text) {
    texts_.push_back(std::move(text));
    return texts_.back();
  }

 private:
  std::deque<std::string> texts_;  // a deque does not move its elements
};

}  // namespace kvikk
