#pragma once
// SentencePiece's byte-pair encoding: Llama 1 and 2, Mistral, Phi-3, Gemma.
//
// There is no merge list: two neighbours may merge when their text together is a token, tokens with
// better scores first. Text runs unbroken, with "▁" (U+2581) for a space; a character without a
// token becomes byte tokens. Order as in the original pipelines, whose merge list is derived from
// the scores: user-defined tokens first, then by score; the ways to split one token by the id of
// their left part.
//
// Inside, a plain space stands for U+2581, so that ordinary text needs no copy.

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/join_filter.h"
#include "text/string_table.h"
#include "text/token_model.h"
#include "text/token_texts.h"
#include "text/vocabulary.h"

namespace kvikk {

class PieceBpe : public TokenModel {
 public:
  // `data` has passed check_vocabulary. `texts` are the tokens' bytes and must outlive the model.
  static Result<std::unique_ptr<PieceBpe>> create(const VocabularyData& data,
                                                  const TokenTexts& texts);

  static constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
  // `text` with a plain space for each U+2581.
  static std::string with_plain_spaces(std::string_view text);
  // The byte that "<0x0A>" stands for; nothing where `token` is not written so.
  static std::optional<char> token_byte(std::string_view token);

  // The text has plain spaces and no U+2581.
  void encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const override;

 private:
  PieceBpe(const VocabularyData& data, const TokenTexts& texts);
  Status add_byte_tokens(const VocabularyData& data);
  Status add_pieces(const VocabularyData& data);
  void set_order(const VocabularyData& data);
  void encode_piece(std::string_view piece, MergeQueue* queue, std::vector<TokenId>* out) const;
  void add_symbol(std::string_view piece, uint32_t begin, uint32_t end, MergeQueue* queue) const;

  const TokenTexts* texts_;
  StringTable ids_;              // of the tokens that text can become
  std::vector<uint32_t> order_;  // [tokens] kNoMerge where text cannot become the token
  size_t piece_bytes_max_ = 0;
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  std::optional<TokenId> unknown_;
  JoinFilter joins_;
};

}  // namespace kvikk
