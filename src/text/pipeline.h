#pragma once
// Everything between a vocabulary and a tokenizer: what happens to text before and after the token
// model. Made from the names in a GGUF file (gguf_pipeline.cpp) or from a tokenizer.json
// (json_pipeline.cpp).

#include <vector>

#include "base/status.h"
#include "kvikk/token.h"
#include "text/added_tokens.h"
#include "text/char_bpe.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/token_decoder.h"
#include "text/vocabulary.h"
#include "text/wordpiece.h"

namespace kvikk {

struct Pipeline {
  std::vector<AddedToken> added;  // looked for in the text as it comes
  std::vector<AddedToken>
      normalized_added;  // looked for after normalisation, themselves normalised
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  bool ignore_merges = false;  // "gpt2"
  CharBpe::Options char_bpe;   // "bpe"
  WordPiece::Options wordpiece;
  TokenDecoder decoder;
  std::vector<TokenId> prefix, suffix;  // around a text that is to begin and end as usual
};

// For data.model "gpt2", "llama", "t5" and "bert". May change data to what the original vocabulary
// was before it was converted.
Result<Pipeline> gguf_pipeline(VocabularyData* data);

}  // namespace kvikk
