#pragma once
// The tokenizer of a Hugging Face folder: tokenizer.json and what the small files beside it add.
// Which tokens begin and end texts and answers is decided as the `transformers` library does.

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer.h"

namespace kvikk {

// The text of each file; empty where the folder does not have it. Messages say `folder` and the
// file's name.
struct TokenizerFiles {
  std::string folder;
  std::string tokenizer;           // tokenizer.json
  std::string tokenizer_config;    // tokenizer_config.json
  std::string special_tokens_map;  // special_tokens_map.json
  std::string generation_config;   // generation_config.json
  std::string chat_template;       // chat_template.jinja
  std::string chat_template_json;  // chat_template.json
};

// kDamaged where a file is no JSON or contradicts itself, kUnsupported with the name and place of
// what is not known.
Result<Tokenizer> tokenizer_from_json(const TokenizerFiles& files);

// The same for a folder that has a SentencePiece model ("tokenizer.model", its bytes) instead of a
// tokenizer.json. Whether texts begin with BOS and end with EOS is what tokenizer_config.json says,
// else yes and no; it can add tokens.
Result<Tokenizer> tokenizer_from_sentencepiece(const TokenizerFiles& files,
                                               std::string_view sentencepiece);

// The Jinja text: chat_template.jinja, else chat_template.json, else the key chat_template of
// tokenizer_config.json, which can be a list of templates with names: then "default", or else the
// only one. Nothing where there is none.
Result<std::optional<std::string>> chat_template_from_json(const TokenizerFiles& files);

}  // namespace kvikk
