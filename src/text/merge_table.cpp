// Most vocabularies list their tokens in the order of their merges, which saves a search each.
#include "text/merge_table.h"

namespace kvikk {

Result<StringTable> token_table(const VocabularyData& data) {
  StringTable ids(data.tokens.size());
  for (TokenId id = 0; static_cast<size_t>(id) < data.tokens.size(); ++id) {
    if (data.types[static_cast<size_t>(id)] == TokenType::kUnused) continue;
    TRY_ASSIGN(const TokenId first,
               ids.add(id, [&data](TokenId i) { return std::string_view(data.tokens[i]); }));
    if (first != id) return duplicate_token(data, first, id);
  }
  return ids;
}

TokenId find_token(const VocabularyData& data, const StringTable& ids, std::string_view written) {
  return ids.find(written, [&data](TokenId i) { return std::string_view(data.tokens[i]); });
}

TokenId find_text_token(const VocabularyData& data, const StringTable& ids,
                        std::string_view written) {
  const TokenId id = find_token(data, ids, written);
  return id >= 0 && can_come_from_text(data.types[id]) ? id : -1;
}

Result<MergeTable> MergeTable::create(const VocabularyData& data, const StringTable& ids,
                                      std::string_view prefix) {
  if (data.merges.size() > kMergesMax) return unsupported("too many merges");
  MergeTable table;
  size_t slots = 16;
  while (slots < data.merges.size() * 2) slots *= 2;
  table.slots_.resize(slots);
  std::string joined;
  size_t next = 0;  // the id after that of the last merge's token
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view merge = data.merges[rank];
    const size_t space = merge.find(data.merge_separator, 1);
    const auto bad = [&](std::string_view what) {
      return damaged("merge " + std::to_string(rank) + " ('" + std::string(merge) + "') " +
                     std::string(what));
    };
    if (space == std::string_view::npos) return bad("is not two tokens with a space between them");
    const std::string_view left_text = merge.substr(0, space);
    std::string_view right_text = merge.substr(space + 1);
    const TokenId left = find_text_token(data, ids, left_text);
    const TokenId right = find_text_token(data, ids, right_text);
    if (right_text.starts_with(prefix)) right_text.remove_prefix(prefix.size());
    joined.assign(left_text);
    joined.append(right_text);
    const bool is_next = next < data.tokens.size() && data.tokens[next] == joined &&
                         can_come_from_text(data.types[next]);
    const TokenId token = is_next ? static_cast<TokenId>(next) : find_text_token(data, ids, joined);
    next = static_cast<size_t>(token) + 1;
    const bool may_skip = data.skips_control_merges && (left < 0 || right < 0 || token < 0) &&
                          find_token(data, ids, left_text) >= 0 &&
                          find_token(data, ids, merge.substr(space + 1)) >= 0 &&
                          find_token(data, ids, joined) >= 0;
    if (may_skip) continue;
    if (left < 0 || right < 0) return bad("joins a token that the vocabulary does not have");
    if (token < 0) return bad("makes a token that the vocabulary does not have");
    const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    TRY(table.add(pair, static_cast<uint32_t>(rank), token));
  }
  return table;
}

Status MergeTable::add(uint64_t pair, uint32_t rank, TokenId token) {
  const uint64_t hash = mix_hash(pair);
  for (size_t probe = 0; probe < StringTable::kProbesMax; ++probe) {
    Slot& slot = slots_[(hash + probe) & (slots_.size() - 1)];
    // The last of equal merges counts, as in the reference library.
    if (slot.pair != pair && slot.pair != UINT64_MAX) continue;
    slot = {pair, rank, token};
    return ok_status();
  }
  return damaged("the vocabulary's merges collide in the hash table");
}

}  // namespace kvikk
