#pragma once
// How a model makes one vector of a text's final hidden states, as its files say.

#include <optional>
#include <string_view>

#include "base/status.h"
#include "models/model_file.h"

namespace kvikk {

enum class Pooling {
  kMean,  // of all tokens, those at the text's ends included
  kCls,   // the first token's
  kLast,  // the last token's
};

// "mean", "cls", "last".
std::optional<Pooling> pooling_of(std::string_view name);
const char* pooling_name(Pooling pooling);

// What the file says: GGUF's pooling_type, or modules.json of a sentence-transformers folder and
// the Pooling module's config.json. Where nothing does: the mean of an encoder's, the last of a
// decoder's. Errors: kUnsupported (another kind; a module behind the pooling that computes more),
// kDamaged.
Result<Pooling> read_pooling(const ModelFile& file);

}  // namespace kvikk
