#pragma once
// The bytes that each token of a vocabulary stands for, in one block of memory.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kvikk/token.h"

namespace kvikk {

class TokenTexts {
 public:
  void reserve(size_t tokens, size_t bytes) {
    ends_.reserve(tokens);
    bytes_.reserve(bytes);
  }
  // The text of the next id.
  void add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }

  size_t size() const { return ends_.size(); }
  std::string_view operator()(TokenId id) const {
    DCHECK(id >= 0 && static_cast<size_t>(id) < size());
    const size_t begin = id == 0 ? 0 : ends_[id - 1];
    return {bytes_.data() + begin, ends_[id] - begin};
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;  // [tokens] in bytes_
};

}  // namespace kvikk
