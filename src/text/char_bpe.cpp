// Unknown characters become symbols that never merge; runs of them are fused at the end.
#include "text/char_bpe.h"

#include <algorithm>

#include "text/piece_bpe.h"
#include "text/utf8.h"

namespace kvikk {

CharBpe::CharBpe(const VocabularyData& data, Options options, StringTable ids, MergeTable merges)
    : options_(std::move(options)),
      tokens_(data.tokens),
      types_(data.types),
      ids_(std::move(ids)),
      merges_(std::move(merges)),
      joins_(data.tokens.size()),
      has_affixes_(!options_.prefix.empty() || !options_.suffix.empty()),
      unknown_(data.unk) {
  byte_tokens_.fill(-1);
}

Result<std::unique_ptr<CharBpe>> CharBpe::create(const VocabularyData& data, Options options) {
  for (const std::string* affix : {&options.prefix, &options.suffix}) {
    if (affix->size() > kAffixBytesMax) {
      return unsupported("a subword prefix or suffix of " + std::to_string(affix->size()) +
                         " bytes");
    }
  }
  TRY_ASSIGN(StringTable ids, token_table(data));
  TRY_ASSIGN(MergeTable merges, MergeTable::create(data, ids, options.prefix));
  std::unique_ptr<CharBpe> model(
      new CharBpe(data, std::move(options), std::move(ids), std::move(merges)));
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    if (data.types[id] == TokenType::kByte) {
      const std::optional<char> byte = PieceBpe::token_byte(token);
      if (!byte.has_value()) continue;
      model->byte_tokens_[static_cast<unsigned char>(*byte)] = static_cast<TokenId>(id);
    }
    const bool can_match =
        can_come_from_text(data.types[id]) && !token.empty() && is_valid_utf8(token);
    if (can_match) model->joins_.add(token);
  }
  return model;
}

TokenId CharBpe::find(std::string_view written) const {
  const TokenId id = ids_.find(
      written, [this](TokenId i) { return std::string_view(tokens_[static_cast<size_t>(i)]); });
  return id >= 0 && can_come_from_text(types_[static_cast<size_t>(id)]) ? id : -1;
}

void CharBpe::encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const {
  if (options_.ignore_merges) {
    const TokenId whole = find(text);
    if (whole >= 0) {
      out->push_back(whole);
      return;
    }
  }
  const size_t start = out->size();
  for (size_t begin = 0; begin < text.size();) {
    DecodedChar left = decode_valid_utf8(text.data() + begin);
    size_t end = begin + left.bytes;
    while (end < text.size()) {
      const DecodedChar right = decode_valid_utf8(text.data() + end);
      if (!has_affixes_ && !joins_.may_join(left.code_point, right.code_point)) break;
      left = right;
      end += right.bytes;
    }
    const std::string_view piece = text.substr(begin, end - begin);
    const size_t before = out->size();
    // With affixes the same characters can be different symbols at the ends of a word.
    const bool known = state->cache.append_known(piece, out);
    if (!known) encode_piece(text, begin, end, &state->queue, out);
    const bool fuse = options_.fuse_unknown && unknown_.has_value() && before > start &&
                      before < out->size() && (*out)[before - 1] == *unknown_ &&
                      (*out)[before] == *unknown_;
    if (fuse) {
      out->erase(out->begin() + static_cast<ptrdiff_t>(before));
      state->cache.forget();
    }
    if (!known) state->cache.end(*out);
    begin = end;
  }
}

void CharBpe::encode_piece(std::string_view word, size_t begin, size_t end, MergeQueue* queue,
                           std::vector<TokenId>* out) const {
  queue->clear();
  for (size_t at = begin; at < end;) {
    const size_t next = at + decode_valid_utf8(word.data() + at).bytes;
    add_character(word, at, next, queue);
    at = next;
  }
  const size_t start = out->size();
  queue->run(
      [this](const MergeQueue::Symbol& left, const MergeQueue::Symbol& right) {
        return merges_.find(left.token, right.token);
      },
      out);
  if (!options_.fuse_unknown || !unknown_.has_value()) return;
  const auto first = out->begin() + static_cast<ptrdiff_t>(start);
  out->erase(std::unique(first, out->end(),
                         [this](TokenId a, TokenId b) { return a == *unknown_ && b == *unknown_; }),
             out->end());
}

void CharBpe::add_character(std::string_view word, size_t begin, size_t end,
                            MergeQueue* queue) const {
  std::string_view written = word.substr(begin, end - begin);
  std::string with_affixes;
  if (has_affixes_) {
    with_affixes = begin == 0 ? "" : options_.prefix;
    with_affixes += written;
    if (end == word.size()) with_affixes += options_.suffix;
    written = with_affixes;
  }
  const auto symbol_begin = static_cast<uint32_t>(begin);
  const auto symbol_end = static_cast<uint32_t>(end);
  const TokenId token = find(written);
  if (token >= 0) {
    queue->add(symbol_begin, symbol_end, token);
    return;
  }
  const bool has_bytes =
      options_.byte_fallback && std::all_of(written.begin(), written.end(), [this](char c) {
        return byte_tokens_[static_cast<unsigned char>(c)] >= 0;
      });
  if (has_bytes) {
    for (const char c : written) {
      queue->add(symbol_begin, symbol_end, byte_tokens_[static_cast<unsigned char>(c)]);
    }
  } else if (unknown_.has_value()) {
    queue->add(symbol_begin, symbol_end, *unknown_);
  }
}

}  // namespace kvikk
