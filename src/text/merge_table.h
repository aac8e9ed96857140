#pragma once
// The merge list of a byte-pair encoding: which two neighbouring tokens become which, and in what
// order. A hash table keyed by pairs of ids; a rank is the merge's place in the list.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/merge_queue.h"
#include "text/string_table.h"
#include "text/vocabulary.h"

namespace kvikk {

class MergeTable {
 public:
  static constexpr size_t kMergesMax = size_t{1} << 26;

  // data.merges, looked up in `ids`, a table of data.tokens. `prefix` is written before every token
  // but the first of a word, and goes where two tokens merge. kDamaged where a merge joins or makes
  // a token that the vocabulary does not have or, unless data.skips_control_merges, that must not
  // come from text.
  static Result<MergeTable> create(const VocabularyData& data, const StringTable& ids,
                                   std::string_view prefix);

  // What two neighbours become.
  Merge find(TokenId left, TokenId right) const {
    const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    for (size_t i = mix_hash(pair);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.pair == pair || slot.pair == UINT64_MAX) return {slot.rank, 0, slot.token};
    }
  }

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;  // left id << 32 | right id
    uint32_t rank = kNoMerge;
    TokenId token = -1;
  };
  Status add(uint64_t pair, uint32_t rank, TokenId token);

  std::vector<Slot> slots_;  // a power of two, at most half full
};

// A table of all of data.tokens. kDamaged where two are equal.
Result<StringTable> token_table(const VocabularyData& data);

// The token that is written so in the file, or -1.
TokenId find_token(const VocabularyData& data, const StringTable& ids, std::string_view written);
// The same, but only one that may come out of a user's text.
TokenId find_text_token(const VocabularyData& data, const StringTable& ids,
                        std::string_view written);

}  // namespace kvikk
