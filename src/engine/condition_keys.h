#pragma once
// What coding needs to know of a model's keys, from the file that an earlier start kept or measured
// now.

#include <string>
#include <vector>

#include "models/kv_coding.h"
#include "text/tokenizer.h"

namespace kvikk {

struct ConditionRequest {
  KvChoice choice;
  size_t context = 0;     // positions at most
  std::string weights;    // EngineOptions::weights
  std::string cache_dir;  // where measurements are kept; empty: nowhere
};

// Measures over the built-in text; without a tokenizer for it, or where the context is too short
// for a measurement, says only what the weights do. Codings of other people need nothing. Errors:
// kExhausted, kDamaged (keys that are no numbers).
Result<std::vector<KeyConditioning>> condition_keys(Model& model, Compute& compute,
                                                    const TensorSource& tensors,
                                                    const Tokenizer* tokenizer,
                                                    const ConditionRequest& request);

}  // namespace kvikk
