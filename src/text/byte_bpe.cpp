// The merge table is keyed by pairs of ids; a rank is the merge's place in the list.
#include "text/byte_bpe.h"

#include "text/utf8.h"

namespace kvikk {
namespace {

// GPT-2's alphabet: printable Latin-1 characters stand for themselves, and the other 68 bytes, in
// order, for U+0100 and up.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 0x144> byte_of{};  // -1: none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of) byte = -1;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t c = stands_for_itself(byte) ? byte : next++;
    alphabet.of_byte[byte] = c;
    alphabet.byte_of[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

// The token that is written so in the file, or -1; only one that may come out of a user's text.
TokenId find_token(const VocabularyData& data, const StringTable& ids, std::string_view written) {
  const TokenId id =
      ids.find(written, [&data](TokenId i) { return std::string_view(data.tokens[i]); });
  return id >= 0 && can_come_from_text(data.types[id]) ? id : -1;
}

}  // namespace

std::optional<std::string> ByteBpe::token_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  const char* const end = token.data() + token.size();
  for (const char* p = token.data(); p < end;) {
    const DecodedChar c = decode_utf8(p, end);
    const bool known =
        c.valid && c.code_point < kAlphabet.byte_of.size() && kAlphabet.byte_of[c.code_point] >= 0;
    if (!known) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[c.code_point]));
    p += c.bytes;
  }
  return bytes;
}

Result<std::unique_ptr<ByteBpe>> ByteBpe::create(const VocabularyData& data,
                                                 const TokenTexts& texts,
                                                 Pretokenizer pretokenizer) {
  std::unique_ptr<ByteBpe> model(new ByteBpe(texts, std::move(pretokenizer)));
  StringTable ids(data.tokens.size());
  for (TokenId id = 0; static_cast<size_t>(id) < data.tokens.size(); ++id) {
    TRY_ASSIGN(const TokenId first,
               ids.add(id, [&data](TokenId i) { return std::string_view(data.tokens[i]); }));
    if (first != id) return duplicate_token(data, first, id);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, kAlphabet.of_byte[byte]);
    model->byte_tokens_[byte] = find_token(data, ids, character);
  }
  TRY(model->add_merges(data, ids));
  if (model->pretokenizer_.ignores_merges()) TRY(model->add_whole_words(data));
  return model;
}

Status ByteBpe::add_merges(const VocabularyData& data, const StringTable& ids) {
  if (data.merges.empty()) return damaged("the vocabulary has no merges (tokenizer.ggml.merges)");
  constexpr size_t kMergesMax = size_t{1} << 26;
  if (data.merges.size() > kMergesMax) return unsupported("too many merges");
  size_t slots = 16;
  while (slots < data.merges.size() * 2) slots *= 2;
  merges_.resize(slots);
  std::string joined;
  size_t next = 0;  // the id after that of the last merge's token
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view merge = data.merges[rank];
    const size_t space = merge.find(' ', 1);
    const auto bad = [&](std::string_view what) {
      return damaged("merge " + std::to_string(rank) + " ('" + std::string(merge) + "') " +
                     std::string(what));
    };
    if (space == std::string_view::npos) return bad("is not two tokens with a space between them");
    joined.assign(merge, 0, space);
    joined.append(merge, space + 1);
    const TokenId left = find_token(data, ids, merge.substr(0, space));
    const TokenId right = find_token(data, ids, merge.substr(space + 1));
    // Most vocabularies list their tokens in the order of their merges.
    const bool is_next = next < data.tokens.size() && data.tokens[next] == joined &&
                         can_come_from_text(data.types[next]);
    const TokenId token = is_next ? static_cast<TokenId>(next) : find_token(data, ids, joined);
    next = static_cast<size_t>(token) + 1;
    if (left < 0 || right < 0) return bad("joins a token that the vocabulary does not have");
    if (token < 0) return bad("makes a token that the vocabulary does not have");
    const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    TRY(add_merge(pair, static_cast<uint32_t>(rank), token));
  }
  return ok_status();
}

Status ByteBpe::add_merge(uint64_t pair, uint32_t rank, TokenId token) {
  const uint64_t hash = mix_hash(pair);
  for (size_t probe = 0; probe < StringTable::kProbesMax; ++probe) {
    PairMerge& slot = merges_[(hash + probe) & (merges_.size() - 1)];
    if (slot.pair == pair) return ok_status();  // the first of equal merges counts
    if (slot.pair != UINT64_MAX) continue;
    slot = {pair, rank, token};
    return ok_status();
  }
  return damaged("the vocabulary's merges collide in the hash table");
}

Status ByteBpe::add_whole_words(const VocabularyData& data) {
  words_.emplace(data.tokens.size());
  for (TokenId id = 0; static_cast<size_t>(id) < data.tokens.size(); ++id) {
    if (data.types[id] != TokenType::kNormal) continue;
    TRY(words_->add(id, *texts_).status());
  }
  return ok_status();
}

Merge ByteBpe::find_merge(TokenId left, TokenId right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  for (size_t i = mix_hash(pair);; ++i) {
    const PairMerge& slot = merges_[i & (merges_.size() - 1)];
    if (slot.pair == pair || slot.pair == UINT64_MAX) return {slot.rank, 0, slot.token};
  }
}

void ByteBpe::encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const {
  pretokenizer_.split(text, [&](std::string_view piece) {
    if (state->cache.append_known(piece, out)) return;
    encode_piece(piece, &state->queue, out);
    state->cache.end(*out);
  });
}

void ByteBpe::encode_piece(std::string_view piece, MergeQueue* queue,
                           std::vector<TokenId>* out) const {
  if (words_.has_value()) {
    const TokenId word = words_->find(piece, *texts_);
    if (word >= 0) {
      out->push_back(word);
      return;
    }
  }
  queue->clear();
  for (size_t i = 0; i < piece.size(); ++i) {
    const TokenId token = byte_tokens_[static_cast<unsigned char>(piece[i])];
    if (token >= 0) queue->add(i, i + 1, token);
  }
  queue->run(
      [this](const MergeQueue::Symbol& left, const MergeQueue::Symbol& right) {
        return find_merge(left.token, right.token);
      },
      out);
}

}  // namespace kvikk
