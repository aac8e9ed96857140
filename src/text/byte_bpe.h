#pragma once
// Byte-level byte-pair encoding: GPT-2's, used by Llama 3, Qwen, SmolLM, Falcon, StarCoder,
// DeepSeek...
//
// A piece begins as single bytes and merges pairs in the order of the merge list. In the file, a
// token is written in printable characters, one for each byte (byte_alphabet.h).

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/merge_table.h"
#include "text/string_table.h"
#include "text/token_model.h"
#include "text/token_texts.h"
#include "text/vocabulary.h"

namespace kvikk {

class ByteBpe : public TokenModel {
 public:
  // `data` has passed check_vocabulary. Merges of unknown tokens are kDamaged. `texts` are the
  // tokens' bytes and must outlive the model. ignore_merges: a piece that is a token as a whole is
  // that token, whatever the merges say.
  static Result<std::unique_ptr<ByteBpe>> create(const VocabularyData& data,
                                                 const TokenTexts& texts, bool ignore_merges);

  // A byte that has no token is left out, as the reference tokenizer does.
  void encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const override;

 private:
  ByteBpe(const TokenTexts& texts, MergeTable merges)
      : texts_(&texts), merges_(std::move(merges)) {}
  Status add_whole_words(const VocabularyData& data);
  void encode_piece(std::string_view piece, MergeQueue* queue, std::vector<TokenId>* out) const;

  const TokenTexts* texts_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  std::optional<StringTable> words_;      // by their bytes, where merges are ignored for words
};

}  // namespace kvikk
