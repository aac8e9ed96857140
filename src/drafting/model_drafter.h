#pragma once
// A smaller model with the same vocabulary guesses, one token a pass. It draws with the request's
// own sampler, so that where both models agree about the odds they draw the same token.

#include <memory>
#include <string>

#include "drafting/drafter.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace kvikk {

struct DraftModel {
  std::shared_ptr<const TensorSource> source;
  ModelConfig config;
  ModelWeights weights;
};

struct DraftModelLimits {
  size_t vocabulary = 0;     // of the model that is drafted for
  size_t rows_max = 512;     // of a pass over a prompt
  size_t context = 0;        // tokens of a sequence
  size_t sequences_max = 1;  // at a time; one more goes without guesses
};

// Whether every token of the one is the same token of the other. kInvalidArgument with the first
// that is not.
Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

// `compute` is large enough for the model and outlives the drafter. Errors: kExhausted.
Result<std::unique_ptr<Drafter>> make_model_drafter(DraftModel model,
                                                    const DraftModelLimits& limits,
                                                    Compute& compute);

}  // namespace kvikk
