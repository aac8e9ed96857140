#pragma once
// Reads a SentencePiece model ("tokenizer.model"), a Protocol Buffers message, as a vocabulary.
// Only the fields that decide about tokens are looked at:
//   1 pieces: 1 text, 2 score, 3 type (TokenType's numbers)
//   2 trainer: 3 kind (1 unigram, 2 BPE), 40 unk, 41 bos, 42 eos, 43 pad
//   3 normalisation: 2 compiled rules, 3 space in front, 4 spaces are made one

#include <string_view>

#include "base/status.h"
#include "text/vocabulary.h"

namespace kvikk {

// data.model is "llama" for BPE and "t5" for unigram. kDamaged where the message is cut or lists no
// pieces, kUnsupported for other kinds. `name` is the file's, for messages.
Result<VocabularyData> read_sentencepiece(std::string_view name, std::string_view bytes);

}  // namespace kvikk
