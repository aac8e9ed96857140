#pragma once
// A vocabulary as a model file states it, and the checks that make it safe to build a tokenizer
// from. text/ does not read files: models/ fills VocabularyData from GGUF metadata or a
// tokenizer.json.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kvikk/token.h"

namespace kvikk {

enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,      // what stands for text that the vocabulary cannot express
  kControl = 3,      // structure, never produced from a user's text unless asked
  kUserDefined = 4,  // always found in text, before anything else
  kUnused = 5,       // padding of the embedding; never produced
  kByte = 6,         // "<0x0A>": one byte of text that has no token of its own
};

struct VocabularyData {
  // tokenizer.ggml.model: "gpt2", "llama", "t5", "bert". From a tokenizer.json also "bpe" (over
  // characters, with a merge list).
  std::string model;
  std::string pre;           // tokenizer.ggml.pre: how text is cut before merges ("gpt2" only)
  std::string architecture;  // general.architecture: decides what GGUF leaves out

  std::vector<std::string> tokens;   // the index is the id
  std::vector<float> scores;         // [tokens] for "llama" and "t5", otherwise may be empty
  std::vector<double> exact_scores;  // [tokens] where the source has more than floats, or empty
  std::vector<TokenType> types;      // [tokens], or empty: all kNormal
  std::vector<std::string> merges;   // "left right", best first; for "gpt2" and "bpe"
  char merge_separator = ' ';        // between left and right
  // Merges that join or make a control token are left out instead of refused.
  bool skips_control_merges = false;
  std::string charsmap;  // tokenizer.ggml.precompiled_charsmap; for "t5", may be empty

  std::optional<TokenId> bos, eos, eot, unk, pad;
  std::vector<TokenId> end_tokens;  // further ones after which an answer is complete
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

// Bounds that no published vocabulary comes near.
constexpr size_t kVocabularyTokensMax = size_t{1} << 24;
constexpr size_t kTokenBytesMax = 16384;
constexpr size_t kAddedTokenBytesMax = 512;  // of a control or user-defined token

// Checks everything that does not depend on the model kind: sizes, types, ids, scores.
// Fills `types` where it was empty.
Status check_vocabulary(VocabularyData* data);

// What a token model says where a string that must name one token names two.
Status duplicate_token(const VocabularyData& data, TokenId first, TokenId second);

// True for types that a token model may make from plain text.
bool can_come_from_text(TokenType type);

// True for types whose text is looked for in a prompt as a whole: control, unknown, user-defined.
bool is_added_token(TokenType type);

}  // namespace kvikk
