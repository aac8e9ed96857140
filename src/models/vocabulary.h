#pragma once
// What a model says about its text: the tokenizer and the chat template, from a GGUF file
// (tokenizer.*) or from a Hugging Face folder (tokenizer.json and the small files beside it). Only
// moves values and names the file and key of what is missing; text/ judges whether they make a
// tokenizer.

#include <optional>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"
#include "weights/gguf.h"

namespace kvikk {

// kDamaged if a key that the vocabulary needs is missing or of the wrong type, or a token id is not
// one.
Result<VocabularyData> read_vocabulary(const GgufFile& file);

// The Jinja text of tokenizer.chat_template; nothing if the file has none (a base model).
Result<std::optional<std::string>> read_chat_template(const GgufFile& file);

Result<Tokenizer> read_tokenizer(const GgufFile& file);

// The same for a Hugging Face folder. Nothing where it has neither tokenizer.json nor
// tokenizer.model. tokenizer_config.json, special_tokens_map.json and
// generation_config.json are read where they exist: which tokens are special, which end an answer,
// whether texts begin with BOS. kUnsupported names what is not known and where it stands.
Result<std::optional<Tokenizer>> read_folder_tokenizer(const std::string& folder);

// chat_template.jinja, chat_template.json, or the key chat_template of tokenizer_config.json (its
// default one where it has several). Nothing where the folder has none.
Result<std::optional<std::string>> read_folder_chat_template(const std::string& folder);

}  // namespace kvikk
