#pragma once
// Byte-level byte-pair encoding: GPT-2's, used by Llama 3, Qwen, SmolLM, Falcon, StarCoder,
// DeepSeek...
//
// Text is cut by a pre-tokenizer; each piece begins as single bytes and merges pairs in the order
// of the merge list. In the file, a token is written in printable characters, one for each byte.

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/pretokenizer.h"
#include "text/string_table.h"
#include "text/token_model.h"
#include "text/token_texts.h"
#include "text/vocabulary.h"

namespace kvikk {

class ByteBpe : public TokenModel {
 public:
  // `data` has passed check_vocabulary. Merges of unknown tokens are kDamaged.
  // `texts` are the tokens' bytes and must outlive the model.
  static Result<std::unique_ptr<ByteBpe>> create(const VocabularyData& data,
                                                 const TokenTexts& texts,
                                                 Pretokenizer pretokenizer);

  // The bytes that a token's characters in the file stand for, or nothing where a character stands
  // for none (such a token is literal text).
  static std::optional<std::string> token_bytes(std::string_view token);

  // A byte that has no token is left out, as the reference tokenizer does.
  void encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const override;

 private:
  struct PairMerge {
    uint64_t pair = UINT64_MAX;  // left id << 32 | right id
    uint32_t rank = kNoMerge;
    TokenId token = -1;
  };

  ByteBpe(const TokenTexts& texts, Pretokenizer pretokenizer)
      : texts_(&texts), pretokenizer_(std::move(pretokenizer)) {}
  Status add_merges(const VocabularyData& data, const StringTable& ids);
  Status add_merge(uint64_t pair, uint32_t rank, TokenId token);
  Status add_whole_words(const VocabularyData& data);
  Merge find_merge(TokenId left, TokenId right) const;
  void encode_piece(std::string_view piece, MergeQueue* queue, std::vector<TokenId>* out) const;

  const TokenTexts* texts_;
  Pretokenizer pretokenizer_;
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  std::vector<PairMerge> merges_;         // hash table, a power of two, at most half full
  std::optional<StringTable> words_;      // by their bytes, where merges are ignored for words
};

}  // namespace kvikk
