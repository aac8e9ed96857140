#pragma once
// From a conversation or a text to the tokens that the model sees.
//
// The chat template writes control tokens as text, which become tokens; what the user wrote must
// not, even where it spells one. So a mark is put inside each such place of the user's texts before
// they go through the template, and where the rendered text has marks it is cut: neither side alone
// spells the token any more.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvikk/token.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace kvikk {

// bos_token, eos_token, ...: the variables of a template that come from the vocabulary.
nlohmann::ordered_json token_variables(const Tokenizer& tokenizer);

// `conversation` holds messages, and maybe tools and other variables; the turn of the model begins
// at the end. Errors: those of Template::render; kExhausted where texts cannot be marked.
Result<std::vector<TokenId>> encode_conversation(const Tokenizer& tokenizer,
                                                 const Template& chat_template,
                                                 nlohmann::ordered_json conversation);

// A text for plain completion, begun as the model's file says. `special`: text that spells a
// control token becomes that token.
std::vector<TokenId> encode_text(const Tokenizer& tokenizer, std::string_view text, bool special);

}  // namespace kvikk
