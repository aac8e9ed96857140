#pragma once
// The steps of a tokenizer.json around its model, as Pipeline has them. A step that is not known is
// kUnsupported, with its name and place.

#include <string>

#include "base/status.h"
#include "text/json_place.h"
#include "text/pipeline.h"

namespace kvikk {

// `file` is the whole document.
Status read_normalizer(const JsonPlace& file, Normalizer* normalizer);
Status read_pretokenizer(const JsonPlace& file, Pretokenizer* pretokenizer);
Status read_decoder(const JsonPlace& file, TokenDecoder* decoder);
// The tokens that are put around a text.
Status read_post_processor(const JsonPlace& file, Pipeline* pipeline);

}  // namespace kvikk
