#pragma once
// Byte-pair encoding over characters with a merge list: SentencePiece vocabularies in a
// tokenizer.json (Llama 2, Mistral, Gemma), CLIP, GPT.
//
// A piece begins as its characters; one without a token becomes byte tokens, or else <unk>. Text is
// taken as the file writes tokens.

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/join_filter.h"
#include "text/merge_table.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace kvikk {

class CharBpe : public TokenModel {
 public:
  struct Options {
    std::string prefix;  // written before every character of a word but the first
    std::string suffix;  // and after the last
    bool byte_fallback = false;
    bool fuse_unknown = false;  // neighbouring unknown characters are one <unk>
    bool ignore_merges = false;
  };
  static constexpr size_t kAffixBytesMax = 64;

  // `data` has passed check_vocabulary; it is copied from, not kept.
  static Result<std::unique_ptr<CharBpe>> create(const VocabularyData& data, Options options);

  void encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const override;

 private:
  CharBpe(const VocabularyData& data, Options options, StringTable ids, MergeTable merges);
  TokenId find(std::string_view written) const;
  // [begin, end) of the word, whose ends are the word's own.
  void encode_piece(std::string_view word, size_t begin, size_t end, MergeQueue* queue,
                    std::vector<TokenId>* out) const;
  void add_character(std::string_view word, size_t begin, size_t end, MergeQueue* queue) const;

  Options options_;
  std::vector<std::string> tokens_;
  std::vector<TokenType> types_;
  StringTable ids_;
  MergeTable merges_;
  JoinFilter joins_;
  bool has_affixes_ = false;
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  std::optional<TokenId> unknown_;
};

}  // namespace kvikk
