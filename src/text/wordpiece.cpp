// Both tries are walked once per token, so a word costs its length times the longest token.
#include "text/wordpiece.h"

#include <algorithm>

#include "text/utf8.h"

namespace kvikk {
namespace {

void build(std::vector<PieceTrie::Entry> entries, PieceTrie* trie) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.text != b.text ? a.text < b.text : a.token < b.token;
  });
  const auto kept = std::unique(entries.begin(), entries.end(),
                                [](const auto& a, const auto& b) { return a.text == b.text; });
  entries.erase(kept, entries.end());
  trie->build(entries);
}

}  // namespace

Result<std::unique_ptr<WordPiece>> WordPiece::create(const VocabularyData& data,
                                                     const Options& options) {
  if (!data.unk.has_value()) return damaged("the WordPiece vocabulary has no unknown token");
  if (options.word_characters_max > kWordCharactersMax) {
    return unsupported("words of up to " + std::to_string(options.word_characters_max) +
                       " characters (max_input_chars_per_word); at most " +
                       std::to_string(kWordCharactersMax) + " are supported");
  }
  auto model = std::make_unique<WordPiece>();
  model->unknown_ = *data.unk;
  model->word_characters_max_ = options.word_characters_max;
  std::vector<PieceTrie::Entry> first;
  std::vector<PieceTrie::Entry> following;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    std::string_view token = data.tokens[id];
    if (!can_come_from_text(data.types[id]) || token.empty() || !is_valid_utf8(token)) continue;
    first.push_back({token, static_cast<TokenId>(id)});
    if (!token.starts_with(options.prefix) || token.size() == options.prefix.size()) continue;
    token.remove_prefix(options.prefix.size());
    following.push_back({token, static_cast<TokenId>(id)});
  }
  build(std::move(first), &model->first_);
  build(std::move(following), &model->following_);
  return model;
}

void WordPiece::encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const {
  if (state->cache.append_known(text, out)) return;
  encode_word(text, out);
  state->cache.end(*out);
}

void WordPiece::encode_word(std::string_view word, std::vector<TokenId>* out) const {
  const size_t start = out->size();
  size_t characters = 0;
  for (size_t i = 0; i < word.size() && characters <= word_characters_max_; ++i) {
    characters += is_utf8_continuation(word[i]) ? 0 : 1;
  }
  bool fits = characters <= word_characters_max_;
  for (size_t begin = 0; fits && begin < word.size();) {
    const PieceTrie& trie = begin == 0 ? first_ : following_;
    TokenId longest = -1;
    size_t end = begin;
    uint32_t node = PieceTrie::kRoot;
    for (size_t at = begin; at < word.size();) {
      node = trie.next(node, static_cast<unsigned char>(word[at++]));
      if (node == PieceTrie::kNone) break;
      if (trie.token(node) < 0) continue;
      longest = trie.token(node);
      end = at;
    }
    fits = longest >= 0;
    if (fits) out->push_back(longest);
    begin = end;
  }
  if (fits) return;
  out->resize(start);
  out->push_back(unknown_);
}

}  // namespace kvikk
