#pragma once
// The coded cache of a model: its rotary embeddings as the coder needs them, and what is known of
// its keys. Keys of some models are a large constant with a little news on top; taking the constant
// out before coding is worth more than any number of bits.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kv/coder.h"
#include "models/model.h"

namespace kvikk {

// Positions whose keys and queries count for nothing in the statistics: the first few tokens of a
// text take attention that nobody wants, and are unlike all others.
inline constexpr size_t kSinkTokens = 4;

// What is known without a text: the bias of the keys, if the model has one.
std::vector<KeyConditioning> bias_conditioning(const ModelConfig& config,
                                               const ModelWeights& weights);

// About 2,000 tokens that the program carries.
std::string_view calibration_text();
inline constexpr size_t kCalibrationTokensMax = 2048;
// Another text, of about 1,000 tokens, to judge by what was measured.
std::string_view probe_text();

// Runs `tokens` through the model and measures its keys and queries. Errors: kExhausted.
Result<std::vector<KeyConditioning>> calibrate_keys(Model& model, Compute& compute,
                                                    std::span<const TokenId> tokens,
                                                    const KvChoice& choice, size_t context);

// Without conditioning. context: positions at most. Errors: kInvalidArgument (the codec does not
// fit the head size), kUnsupported.
Result<std::shared_ptr<const KvCoder>> make_kv_coder(const ModelConfig& config,
                                                     const KvChoice& choice, size_t context);

}  // namespace kvikk
