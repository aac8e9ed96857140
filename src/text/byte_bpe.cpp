// The byte tokens are found by their characters in the file, everything else by ids.
#include "text/byte_bpe.h"

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace kvikk {

Result<std::unique_ptr<ByteBpe>> ByteBpe::create(const VocabularyData& data,
                                                 const TokenTexts& texts, bool ignore_merges) {
  TRY_ASSIGN(const StringTable ids, token_table(data));
  if (data.merges.empty()) return damaged("the vocabulary has no merges (tokenizer.ggml.merges)");
  TRY_ASSIGN(MergeTable merges, MergeTable::create(data, ids, ""));
  std::unique_ptr<ByteBpe> model(new ByteBpe(texts, std::move(merges)));
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, byte_character(static_cast<unsigned char>(byte)));
    model->byte_tokens_[byte] = find_text_token(data, ids, character);
  }
  if (ignore_merges) TRY(model->add_whole_words(data));
  return model;
}

Status ByteBpe::add_whole_words(const VocabularyData& data) {
  words_.emplace(data.tokens.size());
  for (TokenId id = 0; static_cast<size_t>(id) < data.tokens.size(); ++id) {
    if (data.types[id] != TokenType::kNormal) continue;
    TRY(words_->add(id, *texts_).status());
  }
  return ok_status();
}

void ByteBpe::encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const {
  if (state->cache.append_known(text, out)) return;
  encode_piece(text, &state->queue, out);
  state->cache.end(*out);
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
        return merges_.find(left.token, right.token);
      },
      out);
}

}  // namespace kvikk
