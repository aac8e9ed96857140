#pragma once
// SentencePiece's unigram model: T5, XLM-RoBERTa, ALBERT...
//
// Of all ways to write a text as tokens the one with the best sum of scores wins (Viterbi). A
// character without a token of its own costs more than any token; a run of such characters becomes
// its byte tokens, or else one <unk>.

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "text/piece_trie.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace kvikk {

class Unigram : public TokenModel {
 public:
  // `data` has passed check_vocabulary; its scores are exact_scores where there are some. Tokens
  // are found as they are written in data.tokens.
  static Result<std::unique_ptr<Unigram>> create(const VocabularyData& data);

  void encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const override;

 private:
  void encode_piece(std::string_view text, std::vector<TokenId>* out) const;
  void add_unknown(std::string_view run, std::vector<TokenId>* out) const;

  PieceTrie trie_;
  std::vector<double> scores_;            // [tokens]
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  std::optional<TokenId> unknown_;
  double unknown_score_ = 0;
};

}  // namespace kvikk
