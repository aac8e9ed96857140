#pragma once
// Rotary position embedding (Su et al. 2021, RoFormer): pair i of a head's dimensions turns by
// position * f_i. The ways to stretch f beyond the context of the training are here, one formula
// each.

#include <cstddef>
#include <vector>

#include "base/status.h"

namespace kvikk {

class ConfigKeys;
struct ModelConfig;

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3, kYarn, kLongRope };

  float base = 10000.0f;
  Scaling scaling = Scaling::kNone;
  float factor = 1.0f;            // of the context's extension
  float original_context = 0.0f;  // tokens before the extension
  float low_frequency = 1.0f;     // kLlama3: wavelengths above context / low are stretched,
  float high_frequency = 4.0f;    //          those below context / high are not
  float beta_fast = 32.0f;        // kYarn: turns within the context of the first stretched pair
  float beta_slow = 1.0f;         //        and of the first fully stretched one
  bool truncate = true;           // kYarn: round those pairs' numbers outward
  float attention_factor = 1.0f;  // cosines and sines are multiplied by it
  std::vector<float> short_factors, long_factors;  // [rotary / 2], kLongRope
  std::vector<float> divisors;  // [rotary / 2], of each frequency, from the file; empty: none
};

// f_i of `rotary` / 2 pairs, float32 like the originals, whose rounding is part of the model.
//
// Long factors of kLongRope are for sequences longer than the original context. The choice must be
// the same for all tokens that share a cache, so it is made once for the engine: `context` is the
// longest sequence that it admits. An engine opened with at most the original context uses the
// short ones.
bool uses_long_factors(const RopeConfig& rope, size_t context);
void fill_inverse_frequencies(const RopeConfig& rope, size_t rotary, size_t context, float* out);

// Reads base, scaling and rotating dimensions into config.rope, config.rope_sliding and
// config.rotary, which come with the family's defaults. Errors: kUnsupported (a scaling that is not
// known), kDamaged.
Status read_rope(const ConfigKeys& keys, ModelConfig& config);

}  // namespace kvikk
