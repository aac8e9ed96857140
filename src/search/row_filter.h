#pragma once
// A filter made ready for a scan: says for the rows of a block which may be found.

#include <algorithm>
#include <unordered_set>

#include "kvikk/search.h"
#include "search/chunk.h"

namespace kvikk {

class RowFilter {
 public:
  explicit RowFilter(const IndexFilter& filter) : filter_(filter) {
    if (filter.ids.has_value()) ids_.insert(filter.ids->begin(), filter.ids->end());
  }

  // Bit v: row `first_row` + v of the chunk passes.
  uint16_t mask(const Chunk& chunk, size_t first_row) const {
    unsigned mask = 0xffff;
    for (const IndexFilter::Range& range : filter_.ranges) {
      const int64_t* values = chunk.attribute(range.attribute) + first_row;
      unsigned inside = 0;
      for (size_t v = 0; v < kSearchBlock; ++v) {
        inside |= (values[v] >= range.min && values[v] <= range.max ? 1u : 0u) << v;
      }
      mask &= inside;
    }
    if (filter_.ids.has_value() || filter_.bitmap.has_value()) {
      for (size_t v = 0; v < kSearchBlock; ++v) {
        if ((mask >> v & 1u) != 0 && !passes(chunk.id(first_row + v))) mask &= ~(1u << v);
      }
    }
    return static_cast<uint16_t>(mask);
  }

 private:
  bool passes(int64_t id) const {
    if (filter_.bitmap.has_value()) {
      const auto at = static_cast<uint64_t>(id);
      if (at / 64 >= filter_.bitmap->size()) return false;
      if (((*filter_.bitmap)[at / 64] >> at % 64 & 1u) == 0) return false;
    }
    return !filter_.ids.has_value() || ids_.contains(id);
  }

  const IndexFilter& filter_;
  std::unordered_set<int64_t> ids_;
};

}  // namespace kvikk
