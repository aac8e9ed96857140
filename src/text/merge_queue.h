#pragma once
// Byte-pair merging of one piece of text in O(n log n): symbols form a linked list, candidates wait
// in a heap ordered by (order, tie, position), and a candidate whose symbols changed since is
// skipped. That is the order in which the reference tokenizer merges: best rank first, leftmost
// among equals.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kvikk/token.h"

namespace kvikk {

constexpr uint32_t kNoMerge = UINT32_MAX;

// What two neighbouring symbols become.
struct Merge {
  uint32_t order = kNoMerge;  // smaller merges first; kNoMerge: they stay apart
  uint32_t tie = 0;           // decides between equal orders
  TokenId token = -1;
};

class MergeQueue {
 public:
  struct Symbol {
    uint32_t begin;  // bytes [begin, end) of the piece
    uint32_t end;
    TokenId token;
    uint32_t previous;
    uint32_t next;
    Merge merge;  // with the next symbol
  };

  void clear() { symbols_.clear(); }
  void add(uint32_t begin, uint32_t end, TokenId token) {
    const auto i = static_cast<uint32_t>(symbols_.size());
    symbols_.push_back({begin, end, token, i - 1, i + 1, {}});
  }

  // Merges until nothing merges, then appends the tokens to *out. find(left, right) gives the Merge
  // of two neighbouring symbols.
  template <class Find>
  void run(Find&& find, std::vector<TokenId>* out) {
    const auto count = static_cast<uint32_t>(symbols_.size());
    heap_.clear();
    for (uint32_t i = 0; i + 1 < count; ++i) {
      symbols_[i].merge = find(symbols_[i], symbols_[i + 1]);
      if (symbols_[i].merge.order != kNoMerge) heap_.push_back(candidate(i));
    }
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols_[best.position];
      const bool current =
          left.token >= 0 && left.merge.order == best.order && left.merge.tie == best.tie;
      if (!current) continue;
      Symbol& right = symbols_[left.next];
      left.token = left.merge.token;
      left.end = right.end;
      left.next = right.next;
      right.token = -1;
      if (left.next < count) symbols_[left.next].previous = best.position;
      refresh(find, best.position, count);
      if (left.previous < count) refresh(find, left.previous, count);
    }
    for (uint32_t i = 0; i < count; i = symbols_[i].next) out->push_back(symbols_[i].token);
  }

 private:
  struct Candidate {
    uint32_t order;
    uint32_t tie;
    uint32_t position;  // of the left symbol
    // The standard heap keeps its largest element on top.
    bool operator<(const Candidate& other) const {
      if (order != other.order) return order > other.order;
      if (tie != other.tie) return tie > other.tie;
      return position > other.position;
    }
  };

  Candidate candidate(uint32_t i) const {
    return {symbols_[i].merge.order, symbols_[i].merge.tie, i};
  }

  template <class Find>
  void refresh(Find& find, uint32_t i, uint32_t count) {
    Symbol& symbol = symbols_[i];
    symbol.merge = symbol.next < count ? find(symbol, symbols_[symbol.next]) : Merge{};
    if (symbol.merge.order == kNoMerge) return;
    heap_.push_back(candidate(i));
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace kvikk
