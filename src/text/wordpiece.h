#pragma once
// BERT's WordPiece: a word is cut from the left into the longest tokens; all but the first are
// written with a prefix ("##"). A word that cannot be cut so, or is too long, is [UNK] as a whole.

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/piece_trie.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace kvikk {

class WordPiece : public TokenModel {
 public:
  struct Options {
    std::string prefix = "##";
    size_t word_characters_max = 100;
  };
  static constexpr size_t kWordCharactersMax = 10000;  // of word_characters_max; bounds the time

  // `data` has passed check_vocabulary. A vocabulary without data.unk is kDamaged.
  static Result<std::unique_ptr<WordPiece>> create(const VocabularyData& data,
                                                   const Options& options);

  void encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const override;

 private:
  void encode_word(std::string_view word, std::vector<TokenId>* out) const;

  PieceTrie first_;
  PieceTrie following_;  // without the prefix
  TokenId unknown_ = -1;
  size_t word_characters_max_ = 0;
};

}  // namespace kvikk
