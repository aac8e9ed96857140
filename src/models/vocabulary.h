#pragma once
// What a GGUF file says about its text: tokenizer.ggml.* as VocabularyData, and the chat template.
// Only moves values and names the file and key of what is missing; text/ judges whether they make a
// tokenizer.

#include <optional>
#include <string>

#include "base/status.h"
#include "text/vocabulary.h"
#include "weights/gguf.h"

namespace kvikk {

// kDamaged if a key that the vocabulary needs is missing or of the wrong type, or a token id is not
// one.
Result<VocabularyData> read_vocabulary(const GgufFile& file);

// The Jinja text of tokenizer.chat_template; nothing if the file has none (a base model).
Result<std::optional<std::string>> read_chat_template(const GgufFile& file);

}  // namespace kvikk
